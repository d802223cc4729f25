#pragma once
// Which nodes hold how much of a prompt: a few nodes by name, crowds of nodes as bitmaps.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/sched/node_set.hpp"

namespace mooncaf {

/// Leading blocks of a prompt that one node holds.
struct holder_match {
  node_index node = 0;
  std::uint32_t blocks = 0;       ///< in any tier
  std::uint32_t dram_blocks = 0;  ///< leading ones of them in DRAM

  friend bool operator==(const holder_match&, const holder_match&) noexcept = default;
};

/// Many nodes that hold the same leading blocks, all in DRAM: the ones behind a system prompt that every
/// request has.
struct holder_crowd {
  std::uint32_t blocks = 0;
  node_set nodes;
};

/// Every node that holds at least the first block, once: in `few()` or in one of `crowds()`.
class prefix_match {
 public:
  std::span<const holder_match> few() const noexcept { return few_; }
  std::span<const holder_crowd> crowds() const noexcept { return {crowds_.data(), crowd_count_}; }
  /// Longest match of any node.
  std::uint32_t best_blocks() const noexcept { return best_blocks_; }
  /// One of the nodes that hold the most; no blocks: none holds any.
  holder_match longest() const noexcept {
    holder_match best;
    for (const auto& m : few_) {
      if (m.blocks > best.blocks) best = m;
    }
    for (const auto& crowd : crowds()) {
      if (crowd.blocks <= best.blocks) continue;
      bool first = true;
      crowd.nodes.for_each([&](node_index n) {
        if (std::exchange(first, false)) best = {n, crowd.blocks, crowd.blocks};
      });
    }
    return best;
  }
  /// The part of the prompt that a node holds.
  holder_match held_by(node_index node) const noexcept {
    for (const auto& m : few_) {
      if (m.node == node) return m;
    }
    for (const auto& crowd : crowds()) {
      if (crowd.nodes.test(node)) return {node, crowd.blocks, crowd.blocks};
    }
    return {node, 0, 0};
  }
  bool empty() const noexcept { return few_.empty() && crowd_count_ == 0; }

  void clear() noexcept {
    few_.clear();
    crowd_count_ = 0;
    best_blocks_ = 0;
  }
  void add(const holder_match& m) {
    few_.push_back(m);
    if (m.blocks > best_blocks_) best_blocks_ = m.blocks;
  }
  void add_crowd(std::uint32_t blocks, const node_set& nodes) {
    if (crowd_count_ == crowds_.size()) crowds_.emplace_back();
    crowds_[crowd_count_].blocks = blocks;
    crowds_[crowd_count_++].nodes = nodes;
    if (blocks > best_blocks_) best_blocks_ = blocks;
  }

 private:
  friend class prefix_index;
  std::vector<holder_match> few_;
  std::vector<holder_crowd>
      crowds_;  // the first `crowd_count_`; the others keep their memory for the next prompt
  std::size_t crowd_count_ = 0;
  std::uint32_t best_blocks_ = 0;

  // Scratch of the walk.
  std::vector<holder_match> alive_;
  node_set crowd_, crowd_dram_, dropped_;
  std::vector<std::uint32_t> dram_blocks_;
};

}  // namespace mooncaf
