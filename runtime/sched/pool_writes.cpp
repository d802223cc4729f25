#include "runtime/sched/pool_writes.hpp"

#include <algorithm>
#include <unordered_map>

namespace mooncaf {

namespace {

/// Rendezvous: every node draws a number from the key, the highest wins.
node_id drawn_for(const block_key& key, std::span<const node_id> pool) {
  const auto draw = [&](node_id node) {
    const std::uint64_t words[] = {key.high, key.low, node.value};
    return hash_bytes128(std::as_bytes(std::span{words})).low;
  };
  return *std::ranges::max_element(pool, {}, draw);
}

}  // namespace

std::vector<std::size_t> in_chains(std::span<const block_name> blocks) {
  std::unordered_map<block_key, std::size_t> at;
  std::unordered_multimap<block_key, std::size_t> children;
  for (std::size_t i = 0; i < blocks.size(); ++i) at.emplace(blocks[i].key, i);
  std::vector<std::size_t> open;  // a stack; the blocks with no parent here come off it in order
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (at.contains(blocks[i].parent) && blocks[i].parent != blocks[i].key) {
      children.emplace(blocks[i].parent, i);
    } else {
      open.push_back(i);
    }
  }
  std::vector<std::size_t> order;
  order.reserve(blocks.size());
  while (!open.empty()) {
    order.push_back(open.back());
    open.pop_back();
    const auto [first, last] = children.equal_range(blocks[order.back()].key);
    for (auto child = first; child != last; ++child) open.push_back(child->second);
    children.erase(first, last);
  }
  return order;
}

std::vector<pool_write> plan_pool_writes(std::span<const block_name> blocks, std::span<const node_id> pool,
                                         const std::function<bool(node_id, const block_key&)>& holds) {
  std::vector<pool_write> plan;
  if (pool.empty()) return plan;
  node_id target;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto& block = blocks[i];
    const bool follows = i > 0 && blocks[i - 1].key == block.parent;
    if (!follows) {
      const auto keeper = std::ranges::find_if(pool, [&](node_id node) { return holds(node, block.parent); });
      target = keeper == pool.end() ? drawn_for(block.key, pool) : *keeper;
    }
    if (holds(target, block.key)) continue;
    if (follows && !plan.empty() && plan.back().target == target &&
        plan.back().first + plan.back().count == i) {
      ++plan.back().count;
    } else {
      plan.push_back({target, i, 1});
    }
  }
  return plan;
}

}  // namespace mooncaf
