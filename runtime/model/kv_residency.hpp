#pragma once
// Which KV lies in the blocks of a device with memory of its own: prefixes by their blocks' keys, and the
// ends of sequences that fill no block yet.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/hash.hpp"
#include "storage/prefix_tree.hpp"
#include "storage/write_policy.hpp"

namespace mooncaf {

/// When the KV that passes make on the device (L1) is written to the host's memory (L2).
struct device_write_rule {
  bool through = true;     ///< every block is written at once
  std::uint32_t hits = 0;  ///< else a block is written once so many requests used it; 0: before it leaves

  /// @param selective_hits  of `write_through_selective`.
  static constexpr device_write_rule of(write_policy policy, std::uint32_t selective_hits) noexcept {
    return {writes_on_commit(policy), policy == write_policy::write_through_selective ? selective_hits : 0};
  }

  /// Blocks of a device that are kept free or written ahead, so that a burst of requests finds room without a
  /// loss.
  std::uint32_t ahead(std::uint32_t blocks) const noexcept {
    constexpr std::uint32_t share = 8;
    return hits > 0 ? 0 : std::max(1u, blocks / share);
  }
};

/// Lends a device's blocks to passes and keeps their KV afterwards. A full block whose key is known is shared
/// by all sequences with that prefix, whichever request or worker filled it; the blocks of a sequence behind
/// its keyed ones are kept under the sequence's name. Unused blocks leave least recently used first, a child
/// before its parent, so that the blocks that are left always form prefixes.
///
/// **One tree**: the blocks are the device's tier of the node's `prefix_tree`. A request's use of a prefix
/// counts there for all tiers, and the tree knows which blocks the tiers below have: such a block counts as
/// written, and as unwritten again once the last of those tiers has dropped it.
///
/// The KV of a sequence may **stay**: the host's memory does not get it, and the sequence keeps all of its
/// blocks, from pass to pass, until `let_go`. So the only copy of a block is never taken from a sequence that
/// goes on with it; and as staying sequences never get the room of one longest sequence, passes always find
/// room. Blocks of a sequence that was let go are unwritten. They leave as other blocks do, so they are
/// written before (`next_write`) or lost.
///
/// The class decides; its callers move the bytes. @thread One thread at a time, which holds the tree's mutex
/// where the tree is shared. @cost O(blocks of the sequence) a call.
class kv_residency {
 public:
  /// @param blocks        of the device; >= 1.
  /// @param block_tokens  >= 1. @param spare  blocks that staying sequences never hold.
  /// @param tree     of all tiers of the node; null: one of its own.
  /// @param offered  whether other requests may find blocks here that no other tier has. If not, memory has
  /// all.
  kv_residency(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t spare = 0,
               std::shared_ptr<prefix_tree> tree = {}, bool offered = true);

  /// A pass's need of room: positions [0, end), of which the pass computes [start, end).
  struct wish {
    /// Name of the sequence that goes on from pass to pass; 0: it has one pass. Equal names mean equal
    /// positions before `start`.
    std::uint64_t sequence = 0;
    /// Of the leading blocks, as far as they are known; valid until `give_back`.
    std::span<const block_key> keys;
    std::uint32_t start = 0;
    std::uint32_t end = 0;  ///< > start, but for `expect`
    bool may_stay = false;  ///< the host's memory need not get the new KV; only of a named sequence
  };
  struct place {
    std::uint64_t ticket = 0;  ///< for `give_back`
    /// Indices in [0, blocks) of positions 0 to `end`; until `give_back`. Blocks with a position from `start`
    /// on are this ticket's alone.
    std::span<const std::uint32_t> blocks;
    std::uint32_t valid = 0;  ///< leading positions that the blocks hold already; at most `start`
    /// The pass has to write positions from here to `end` to the host's memory. `end`: none, the sequence
    /// stays; else `start`, or less if the KV of earlier passes had stayed.
    std::uint32_t write_from = 0;
  };

  /// @returns nothing if the blocks that no ticket uses do not suffice.
  std::optional<place> take(const wish& w);
  /// Room for positions [0, end) of a sequence that has not begun and whose KV is loaded from the host's
  /// memory beside all passes. As `take`, but within the room of staying sequences, so that passes find room
  /// however many prompts arrive.
  /// @pre `start == end`. @returns nothing if there is no such room, or if the sequence has stayed here.
  std::optional<place> expect(const wish& w);
  /// Ends a ticket. @param valid  leading positions whose KV the blocks hold now; at least `place::valid`.
  void give_back(std::uint64_t ticket, std::uint32_t valid);

  /// Whether the sequence keeps KV that the host's memory does not have.
  bool stays(std::uint64_t sequence) const { return stays_.contains(sequence); }
  /// How many of the leading keys are here.
  std::uint32_t match(std::span<const block_key> keys) const noexcept;
  /// Gives a sequence that has not begun the leading blocks with these keys, as if its own passes had made
  /// them. @param from  leading blocks that the sequence has in memory.
  /// @param hot  uses after which a block is written; 0: uses do not count.
  /// @returns the number of blocks given, if it is above `from`; else 0, and none is given.
  std::uint32_t adopt(std::uint64_t sequence, std::span<const block_key> keys, std::uint32_t from,
                      std::uint32_t hot);
  /// The sequence has ended: its blocks are shared from now on. Unknown sequences are ignored.
  void let_go(std::uint64_t sequence);

  /// Blocks to be written to the host's memory, parents first. Until `wrote` they neither change nor leave.
  struct write {
    struct item {
      block_key key, parent;  ///< of a prompt's first block `parent` is its own
      std::uint32_t depth = 0;
      std::uint32_t block = 0;
    };
    std::uint64_t id = 0;
    std::vector<item> chain;  ///< memory may have its leading blocks already
  };
  /// Chains that were used often enough (`adopt`); then, if taking `ahead` blocks at once would lose
  /// unwritten ones, the coldest unwritten chain. @cost O(blocks) where any is unwritten.
  std::optional<write> next_write(std::uint32_t ahead);
  /// The first `count` of the chain are in the host's memory.
  void wrote(std::uint64_t id, std::uint32_t count);
  /// Has the blocks with these keys written next; the host's memory has the first `from` of them already.
  /// @returns `match(keys)`.
  std::uint32_t want(std::span<const block_key> keys, std::uint32_t from);

  /// Frees every block that is not lent.
  void forget();
  /// Frees every block and ends every ticket: the device's memory is gone.
  void clear();

  std::uint32_t blocks_for(std::uint32_t tokens) const noexcept;
  struct block_range {
    std::uint32_t first = 0, last = 0;  ///< [first, last)
    std::uint32_t size() const noexcept { return last - first; }
  };
  /// Blocks that must be loaded before positions [0, start) can be read, where `valid` positions are held.
  /// Whole blocks: the memory that they are loaded from has their beginnings, too.
  block_range missing(std::uint32_t valid, std::uint32_t start) const noexcept;
  std::uint32_t blocks() const noexcept { return static_cast<std::uint32_t>(cells_.size()); }
  /// Blocks that hold something or are lent.
  std::uint32_t used() const noexcept { return blocks() - static_cast<std::uint32_t>(free_.size()); }
  /// Blocks with keys that memory does not have.
  std::uint32_t unwritten() const noexcept { return static_cast<std::uint32_t>(order_.unwritten()); }
  std::uint64_t lost() const noexcept { return lost_; }  ///< blocks that left unwritten
  prefix_tree& tree() noexcept { return *tree_; }
  const prefix_tree& tree() const noexcept { return *tree_; }
  /// Whether tickets are out.
  bool lent() const noexcept { return !tickets_.empty(); }
  /// Whether chains are being written, which do not leave meanwhile.
  bool writes() const noexcept { return !writes_.empty(); }
  /// Every block is free, lent or kept, once, and every key leads to its block. For tests.
  bool consistent() const;

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFFu;

  struct cell {
    std::uint32_t pins = 0;  ///< tickets that use it
    bool idle = false;       ///< it holds KV, and no ticket, sequence or write uses it
    bool named = false;      ///< the tree finds it by its key
    /// In the tree, if it has a key or is part of an end.
    prefix_tree::handle place = prefix_tree::none;
    std::uint64_t sequence = 0;  ///< that it is the unfinished end of, if it has no key
    std::uint32_t depth = 0;     ///< in its sequence
    std::uint32_t uses = 0;      ///< of sequences that began with it
    std::uint32_t writing = 0;   ///< chains under way that have it
  };
  /// A staying sequence between its passes.
  struct stay {
    std::vector<std::uint32_t> blocks;  ///< all of the sequence's, each with a pin
    std::uint32_t valid = 0;
    std::uint32_t written = 0;  ///< leading blocks that the host's memory has
  };
  /// Blocks of a sequence behind its blocks with keys.
  struct tail {
    std::uint32_t first = 0;  ///< index of blocks[0] in the sequence
    std::vector<std::uint32_t> blocks;
    std::uint32_t valid = 0;
  };
  struct taken {
    wish what;
    std::vector<std::uint32_t> blocks;
    std::uint32_t shared = 0;    ///< leading blocks that had keys when they were taken
    std::optional<stay> before;  ///< what the sequence had, if it stayed before
    bool stays = false;          ///< the sequence will stay
    bool ends = false;           ///< the sequence was let go meanwhile
    bool expected = false;       ///< of `expect`, and counted with staying sequences
    std::uint32_t write_from = 0;
  };

  std::optional<place> lend(taken&& t, std::uint32_t valid);
  std::optional<place> go_on(const wish& w, stay&& before);
  void keep(taken&& t, std::uint32_t valid);
  void leave(const stay& s);
  bool name(const taken& t, std::uint32_t b, bool unwritten);
  void set_writing(std::uint32_t block, bool value);
  void put_in_order(std::uint32_t block, const block_key& key, const block_key& parent);
  void take_out_of_order(std::uint32_t block);
  /// The block with this key, or `none`.
  std::uint32_t find(const block_key& key) const noexcept {
    const auto h = order_.find(key);
    return h == prefix_tree::none ? none : in_place_[h];
  }
  bool is_unwritten(std::uint32_t block) const noexcept {
    const auto& c = cells_[block];
    return c.named && offered_ && !order_.written(c.place);
  }
  const block_key& key_of(std::uint32_t block) const noexcept { return tree_->key(cells_[block].place); }
  /// Marks the block as unwritten, unless the tree says that another tier has it again.
  void miss(std::uint32_t block);
  std::uint32_t first_to_lose(std::uint32_t count) const;
  std::vector<std::uint32_t> chain_to(std::uint32_t block) const;
  std::uint32_t adopt_tail(taken& t);
  void settle(const taken& t, std::uint32_t valid);
  bool make_room(std::uint32_t wanted);
  void release(std::uint32_t block);
  void evict(std::uint32_t block);
  void drop_tail(std::uint64_t sequence);
  void set_idle(std::uint32_t block);
  void set_busy(std::uint32_t block);

  std::uint32_t block_tokens_;
  std::vector<cell> cells_;
  std::vector<std::uint32_t> free_;
  std::shared_ptr<prefix_tree> tree_;
  prefix_tree::tier& order_;             ///< of blocks that hold KV; pinned blocks do not leave
  std::vector<std::uint32_t> in_place_;  ///< block by its handle
  bool offered_;
  std::uint32_t spare_;
  std::uint32_t idle_ = 0;     ///< blocks
  std::uint32_t staying_ = 0;  ///< blocks of sequences that stay, once for each
  std::uint64_t lost_ = 0;
  std::unordered_map<std::uint64_t, stay> stays_;  ///< by sequence, while no ticket has it
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> writes_;
  std::vector<block_key> hot_;  ///< of blocks that were used often enough and are unwritten
  std::uint64_t next_write_ = 1;
  std::unordered_map<std::uint64_t, tail> tails_;
  std::unordered_map<std::uint64_t, taken> tickets_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mooncaf
