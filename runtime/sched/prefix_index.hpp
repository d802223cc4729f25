#pragma once
// Which nodes hold which KV blocks, cluster-wide: the conductor's soft copy of the shards' announcements.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/prefetch.hpp"
#include "runtime/base/storage_tier.hpp"
#include "runtime/sched/node_set.hpp"
#include "runtime/sched/prefix_match.hpp"

namespace mooncaf {

/// Key -> holders.
///
///   key ─► one of 256 segments ─► slot {64 bits of the key, four holders} ─► more than four: a spilled list,
///                                                                             more than 128: two bitmaps
///
/// Segments grow one by one, so that no event waits for more than a 256th of the index to be moved. A slot is
/// 16 bytes and remembers 64 bits of its key: two blocks that agree in them (one pair in 10^5 indices of 10M
/// blocks) make the index promise a block that its shard then does not find, which is a miss like any other.
/// Leading blocks decide: a node that lacks block i cannot use its block i + 1.
///
/// A lost node is forgotten at once (its number is masked) and its traces are swept up bit by bit later;
/// until then its number is not given out again.
/// @thread  Owned by the CONDUCTOR; not synchronised.
class prefix_index {
 public:
  static constexpr std::size_t max_nodes = 0x3FFF;

  prefix_index();

  /// A number for a node; sweeps first if none is free. @returns nothing if `max_nodes` are in use.
  std::optional<node_index> add_node();
  /// Forgets a node and everything it holds. @cost O(1); `sweep` does the work.
  void drop_node(node_index node);
  /// Goes over `slots` slots and drops the holdings of lost nodes there. No work while there are none.
  void sweep(std::size_t slots);

  /// `node` holds the block, in `tier`; replaces an earlier tier.
  void add(const block_key& key, node_index node, storage_tier tier);
  void remove(const block_key& key, node_index node);

  /// Brings the slot of a block near, for an `add` or `remove` soon after.
  void prefetch(const block_key& key) const noexcept { prefetch_tag(key.low); }

  /// How many leading blocks each node holds. `out` is reused: with enough capacity nothing is allocated.
  /// @cost O(longest match) slots, fetched from memory side by side.
  void match(std::span<const block_key> keys, prefix_match& out) const;
  /// Leading blocks of `keys` that `node` holds, in any tier; in [0, keys.size()].
  std::uint32_t matched_blocks(node_index node, std::span<const block_key> keys) const;
  /// Nodes that hold this block.
  std::size_t holder_count(const block_key& key) const;

  /// Whether, of several nodes with this block, another one than `node` is to keep it: one that has it in
  /// memory before any that has it on SSD, and among equals by a lot that `key.high` draws (the block is
  /// found by `key.low`), so that exactly one of the holders is told no.
  bool kept_elsewhere(const block_key& key, node_index node) const;

  /// Blocks that this node is said to hold, in any tier: all that its shard holds, if no word was lost.
  std::uint64_t held_blocks(node_index node) const noexcept { return node < held_.size() ? held_[node] : 0; }
  /// Blocks indexed; blocks that only lost nodes held count until they are swept.
  std::size_t size() const noexcept { return count_; }
  std::size_t memory_bytes() const noexcept;

 private:
  // A holder is node << 1 | whether it is on SSD, plus 1 so that 0 means none; 15 bits.
  using holder = std::uint16_t;
  static constexpr std::size_t inline_holders = 4;
  static constexpr std::size_t list_holders = 128;
  static constexpr std::size_t segments = 256;
  static constexpr holder spilled = 0x8000;  // in holders[0]; the set's number is in holders[1] and [2]

  struct slot {
    std::uint64_t tag = 0;
    holder holders[inline_holders] = {};
    bool used() const noexcept { return holders[0] != 0; }
    bool is_spilled() const noexcept { return holders[0] == spilled; }
    std::uint32_t set() const noexcept { return holders[1] | std::uint32_t{holders[2]} << 16; }
  };
  struct segment {  // four to a cache line: they are near whatever is looked up
    std::unique_ptr<slot[]> slots;
    std::uint32_t size = 0;
    std::uint32_t count = 0;
  };
  /// Holders of a block that more than four nodes hold: a list ordered by node, or bitmaps.
  struct holder_set {
    std::vector<holder> list;  // unused once there are bitmaps
    node_set held, dram;
    std::uint32_t count = 0;
    bool is_bitmap = false;
  };

  static constexpr holder pack(node_index node, storage_tier tier) noexcept {
    return static_cast<holder>((node << 1 | (tier == storage_tier::ssd ? 1 : 0)) + 1);
  }
  static constexpr node_index node_of(holder h) noexcept { return static_cast<node_index>((h - 1) >> 1); }
  static constexpr bool in_dram(holder h) noexcept { return ((h - 1) & 1) == 0; }

  void prefetch_tag(std::uint64_t tag) const noexcept {
    const auto& s = segment_of(tag);
    mooncaf::prefetch(&s.slots[home(s, tag)]);
  }
  static std::size_t home(const segment& s, std::uint64_t tag) noexcept {
    return static_cast<std::size_t>((tag << 8 >> 32) * s.size >> 32);
  }
  const segment& segment_of(std::uint64_t tag) const noexcept { return segments_[tag >> 56]; }
  const slot* find(std::uint64_t tag) const noexcept;
  slot& claim(std::uint64_t tag);
  static void grow(segment& s);
  void erase_at(segment& s, std::size_t at);

  holder holder_at(const slot& s, node_index node) const noexcept;
  /// Holders of a slot without bitmaps.
  std::span<const holder> listed(const slot& s) const noexcept;
  /// @returns whether the node did not hold it before.
  bool add_holder(slot& s, node_index node, storage_tier tier);
  /// @returns whether no holder is left.
  bool remove_holder(slot& s, node_index node);
  void spill(slot& s, holder fifth);
  bool insert_spilled(holder_set& set, holder h);
  void erase_spilled(slot& s, node_index node);
  bool drop_dead(slot& s);
  void sweep_all();

  struct walk;

  std::vector<segment> segments_;
  std::vector<holder_set> sets_;
  std::vector<std::uint32_t> free_sets_;
  std::size_t count_ = 0;

  std::vector<std::uint64_t> held_;  // by node
  std::vector<node_index> free_nodes_;
  std::size_t next_node_ = 0;
  node_set dead_;                      // dropped, traces may be left
  std::vector<node_index> dead_list_;  // nodes that this sweep gets rid of come first
  std::size_t sweeping_ = 0;           // how many of them
  std::size_t sweep_segment_ = 0, sweep_slot_ = 0;
};

}  // namespace mooncaf
