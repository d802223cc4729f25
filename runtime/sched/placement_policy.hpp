#pragma once
// The ways to choose a prefill instance. `policy.hpp` has a class for each.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// How a prefill instance is chosen. F25 compares these four.
enum class placement_policy : std::uint8_t {
  random,           ///< any
  load_balancing,   ///< the shortest queue
  cache_aware,      ///< the earliest first token, counting the prefix that the instance itself holds
  kvcache_centric,  ///< … counting also the longest prefix that any node holds, where fetching it pays
                    ///< (Algorithm 1)
};

constexpr auto words_of(placement_policy) noexcept {
  using enum placement_policy;
  return words<placement_policy, 4>{{{random, "random"},
                                     {load_balancing, "load_balancing"},
                                     {cache_aware, "cache_aware"},
                                     {kvcache_centric, "kvcache_centric"}}};
}

}  // namespace mooncaf
