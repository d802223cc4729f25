#pragma once
// What the answers of all engines have in common, as JSON.

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Null: it is no object, or has no such member.
inline const nlohmann::json* member(const nlohmann::json& of, const char* name) {
  if (!of.is_object()) return nullptr;
  const auto i = of.find(name);
  return i != of.end() ? &*i : nullptr;
}

/// @error `ec::corrupt`
inline result<std::int32_t> token_id_in(const nlohmann::json& value) {
  const bool fits =
      value.is_number_integer() && value >= 0 && value <= std::numeric_limits<std::int32_t>::max();
  if (!fits) return fail(ec::corrupt, "the engine's answer has a token id that is none");
  return value.get<std::int32_t>();
}

/// What is no number stands for a probability of zero.
inline float logprob_in(const nlohmann::json& value) {
  return value.is_number() ? value.get<float>() : -std::numeric_limits<float>::infinity();
}

}  // namespace mooncaf
