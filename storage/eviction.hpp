#pragma once
// The orders in which KV blocks and objects can be given up. `prefix_tree.hpp` keeps blocks in such an order,
// `objects/table/eviction_order.hpp` objects.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// Order in which blocks or objects are given up.
enum class eviction_policy : std::uint8_t {
  lru,           ///< least recently used
  lfu,           ///< least frequently used, then least recently; the count is forgotten with the block
  length_aware,  ///< least frequently used, then latest in its request, then least recently
  /// The object that is least likely to be wanted again, for the recomputing that a byte of it saves. For
  /// objects alone: a block's cost is not told.
  cost_aware,
};

constexpr auto words_of(eviction_policy) noexcept {
  using enum eviction_policy;
  return words<eviction_policy, 4>{
      {{lru, "lru"}, {lfu, "lfu"}, {length_aware, "length_aware"}, {cost_aware, "cost_aware"}}};
}

struct eviction_options {
  eviction_policy policy = eviction_policy::lru;  ///< not `cost_aware`
  /// A block with a resident child is never a victim, so that a prefix never gets a hole. Off only to
  /// compare.
  bool leaf_first = true;
  /// Blocks that come again (`copy_kind`) are given up before blocks that are here alone. Off only to
  /// compare.
  bool copies_first = true;
  /// A block that lies elsewhere, too, goes as if it had not been used for so many times as long (least
  /// frequently used first: as if it had been used so many times less often). 1: it makes no difference.
  std::uint32_t copy_age = 4;
};

/// Where else a block is.
enum class copy_kind : std::uint8_t {
  alone,        ///< nowhere, as far as is known
  elsewhere,    ///< on another node, which keeps it
  comes_again,  ///< in a tier of this node that gives it back before it lets go of it
};

}  // namespace mooncaf
