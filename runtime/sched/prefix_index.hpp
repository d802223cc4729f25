#pragma once
// Who holds which KV blocks, cluster-wide: the conductor's soft copy of what the shards announce.

#include "runtime/base/hash.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace mooncaf {

/// Dense number of a node in the index, given out by whoever owns it; below `prefix_index::max_nodes`.
using node_index = std::uint16_t;

/// Where a holder has a block.
enum class holder_tier : std::uint8_t { dram = 0, ssd = 1 };

/// Leading blocks of a prompt that one node holds.
struct holder_match {
  node_index node = 0;
  std::uint32_t blocks = 0;      ///< in any tier
  std::uint32_t dram_blocks = 0; ///< leading ones of them in DRAM
};

/// Key -> holders.
///
/// Open addressing with linear probing and backward-shift deletion; an entry is 24 bytes: the key, and up to four
/// holders in place, or the number of a spilled list for blocks that more nodes hold. Leading blocks decide: a node
/// that lacks block i cannot use its block i + 1.
/// @thread  Owned by the CONDUCTOR; not synchronised.
class prefix_index {
 public:
  static constexpr std::size_t max_nodes = 0x3FFF;

  prefix_index();

  void add(const block_key& key, node_index node, holder_tier tier);
  void remove(const block_key& key, node_index node);
  /// Forgets everything of a node. @cost O(blocks indexed).
  void drop_node(node_index node);

  /// One entry per node that holds at least the first block, in no order. `out` is cleared first; with enough
  /// capacity nothing is allocated. @cost O(matched blocks x holders).
  void match(std::span<const block_key> keys, std::vector<holder_match>& out) const;

  std::size_t size() const noexcept { return count_; }
  std::size_t memory_bytes() const noexcept;

 private:
  // A holder is node << 1 | tier, plus 1 so that 0 means none; 15 bits.
  using holder = std::uint16_t;
  static constexpr std::size_t inline_holders = 4;
  static constexpr holder spilled = 0x8000;  // holders[0]: the list's number is in holders[1] and [2]

  struct entry {
    block_key key;
    holder holders[inline_holders] = {};
    bool used() const noexcept { return holders[0] != 0; }
  };

  static holder pack(node_index node, holder_tier tier) noexcept {
    return static_cast<holder>((node << 1 | static_cast<holder>(tier)) + 1);
  }
  static node_index node_of(holder h) noexcept { return static_cast<node_index>((h - 1) >> 1); }
  static holder_tier tier_of(holder h) noexcept { return static_cast<holder_tier>((h - 1) & 1); }

  std::size_t find(const block_key& key) const noexcept;
  std::span<const holder> holders_of(const entry& e) const noexcept;
  std::uint32_t list_of(const entry& e) const noexcept { return e.holders[1] | std::uint32_t{e.holders[2]} << 16; }
  void set_holders(entry& e, std::span<const holder> holders);
  void erase_at(std::size_t at);
  void grow();

  std::vector<entry> table_;  // size is a power of two
  std::vector<std::vector<holder>> lists_;
  std::vector<std::uint32_t> free_lists_;
  std::size_t count_ = 0;
};

}  // namespace mooncaf
