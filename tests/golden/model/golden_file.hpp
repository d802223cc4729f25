#pragma once
// Reads the golden text files of this folder; the scripts beside them describe the format.

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace mooncaf::testing {

/// One `prompt` or `model` block.
struct golden_case {
  std::string name;
  std::vector<std::int32_t> ids;
  double log_sum_exp = 0;
  std::vector<std::pair<std::size_t, double>> logits;   ///< of the last id: the `top` and `some` lines
  std::vector<std::pair<std::int32_t, double>> greedy;  ///< token, lead over the runner-up
  std::vector<std::pair<std::size_t, std::vector<double>>> at;  ///< position, all logits
};

inline std::vector<golden_case> read_golden(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + ": cannot be opened");
  std::vector<golden_case> cases;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "#") continue;
    if (key == "prompt" || key == "model") {
      cases.emplace_back();
      words >> cases.back().name;
      continue;
    }
    auto& c = cases.at(cases.size() - 1);
    char colon = 0;
    if (key == "ids") {
      for (std::int32_t id = 0; words >> id;) c.ids.push_back(id);
    } else if (key == "lse") {
      words >> c.log_sum_exp;
    } else if (key == "top" || key == "some") {
      std::pair<std::size_t, double> entry;
      while (words >> entry.first >> colon >> entry.second) c.logits.push_back(entry);
    } else if (key == "greedy") {
      std::pair<std::int32_t, double> entry;
      while (words >> entry.first >> colon >> entry.second) c.greedy.push_back(entry);
    } else if (key == "at") {
      c.at.emplace_back();
      words >> c.at.back().first >> key;
      for (double x = 0; words >> x;) c.at.back().second.push_back(x);
    } else {
      throw std::runtime_error(path + ": line begins with '" + key + "'");
    }
  }
  return cases;
}

}  // namespace mooncaf::testing
