#pragma once
// What servers of vLLM and SGLang wrote (tests/data/engines).

#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/hash.hpp"

namespace mooncaf {

inline constexpr hash128 test_root{1, 2};

struct recorded_engine {
  std::vector<std::vector<std::byte>> news;  ///< payloads
  std::vector<std::string> answers;          ///< bodies of streams
};

inline std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

inline recorded_engine recorded(const char* engine = "vllm_0.32.0") {
  const auto file = nlohmann::json::parse(std::ifstream{std::string{MOONCAF_RECORDED} + engine + ".json"});
  recorded_engine out;
  for (const auto& message : file["news"]) out.news.push_back(from_hex(message.get<std::string>()));
  for (const auto& answer : file["answers"]) out.answers.push_back(answer.get<std::string>());
  return out;
}

inline std::vector<std::int32_t> numbers(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = first + static_cast<std::int32_t>(i);
  return out;
}

}  // namespace mooncaf
