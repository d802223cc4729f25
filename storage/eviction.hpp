#pragma once
// In which order KV blocks are given up: what there is to choose from. `prefix_tree.hpp` keeps to it.

#include <cstdint>
#include <string_view>

namespace mooncaf {

/// Order in which blocks are given up.
enum class eviction_policy : std::uint8_t {
  lru,           ///< least recently used
  lfu,           ///< least frequently used, then least recently; the count is forgotten with the block
  length_aware,  ///< least frequently used, then latest in its request, then least recently
};

constexpr std::string_view to_string(eviction_policy p) noexcept {
  switch (p) {
    case eviction_policy::lru:
      return "lru";
    case eviction_policy::lfu:
      return "lfu";
    case eviction_policy::length_aware:
      return "length_aware";
  }
  return "unknown";
}

struct eviction_options {
  eviction_policy policy = eviction_policy::lru;
  /// A block with a resident child is never a victim, so that a prefix never gets a hole. Off only to
  /// compare.
  bool leaf_first = true;
  /// What comes again (`copy_kind`) is given up before what is here alone. Off only to compare.
  bool copies_first = true;
  /// What lies elsewhere, too, goes as if it had not been used for so many times as long (least frequently
  /// used first: as if it had been used so many times less often). 1: it makes no difference.
  std::uint32_t copy_age = 4;
};

/// Where else a block is.
enum class copy_kind : std::uint8_t {
  alone,        ///< nowhere, as far as is known
  elsewhere,    ///< on another node, which keeps it
  comes_again,  ///< in a tier of this node that gives it back before it lets go of it
};

}  // namespace mooncaf
