#pragma once
// Which new KV blocks nodes of the pool (which store and do not compute) should copy.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/block_name.hpp"
#include "runtime/base/ids.hpp"

namespace mooncaf {

/// `count` announced blocks from `first` on, one chain, go to `target`.
struct pool_write {
  node_id target;
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Indices of `blocks` with every block right behind its parent where both are given; otherwise in their
/// order. A snapshot names blocks in any order.
std::vector<std::size_t> in_chains(std::span<const block_name> blocks);

/// Every block goes to one pool node. A chain stays together, so that one fetch gets a whole prefix: a block
/// follows its parent, and first blocks are spread by their keys (rendezvous hashing: a node that comes or
/// goes moves only its share). Blocks that their node has already are left out.
/// @param pool   candidates; none: nothing is written.
/// @param holds  whether a pool node is known to hold a block.
std::vector<pool_write> plan_pool_writes(std::span<const block_name> blocks, std::span<const node_id> pool,
                                         const std::function<bool(node_id, const block_key&)>& holds);

}  // namespace mooncaf
