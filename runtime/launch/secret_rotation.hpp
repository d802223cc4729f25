#pragma once
// How a cluster that runs gets another secret, so that at every moment each process is let in by every other.
//
//   a host's file   what its processes prove, and whom they let in
//   old             old                       old
//   old new         old                       old and new     on all hosts, before
//   new old         new                       old and new     on all hosts, before
//   new             new                       new
//
// What the operator keeps says how far it got: a rotation that was cut off goes on with the same new secret.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf::launch {

struct rotation_step {
  bool keep = false;    ///< the operator's own file; else the files of all hosts
  std::string lines{};  ///< its new text
  bool settle = false;  ///< links that began before it are given a moment
};

/// @param kept  the operator's file. @param fresh  a secret that nobody knows yet
/// @error `ec::invalid_argument` if more than two secrets are kept, or none
inline result<std::vector<rotation_step>> rotation_steps(std::string_view kept, const std::string& fresh) {
  std::vector<std::string> lines;
  while (!kept.empty()) {
    const auto line = kept.substr(0, kept.find('\n'));
    kept.remove_prefix(std::min(line.size() + 1, kept.size()));
    constexpr std::string_view blank = " \t\r";
    const auto first = line.find_first_not_of(blank);
    if (first != std::string_view::npos)
      lines.emplace_back(line.substr(first, line.find_last_not_of(blank) - first + 1));
  }
  if (lines.empty() || lines.size() > 2)
    return fail(ec::invalid_argument, "the secret file has " + std::to_string(lines.size()) +
                                          " secrets, a line each; leave the one that the cluster uses");
  const auto old = lines[0] + "\n";
  const auto next = (lines.size() == 2 ? lines[1] : fresh) + "\n";
  std::vector<rotation_step> steps;
  if (lines.size() == 1) steps = {{false, old + next}, {true, old + next}};
  steps.insert(steps.end(), {{false, next + old}, {true, next}, {false, next, true}});
  return steps;
}

}  // namespace mooncaf::launch
