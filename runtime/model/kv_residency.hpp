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

/// What becomes of what passes make (L1 to L2).
struct device_write_rule {
  bool through = true;     ///< the host's memory gets it at once
  std::uint32_t hits = 0;  ///< else: when so many requests have used it; 0: before it leaves the device

  /// @param selective_hits  of `write_through_selective`.
  static constexpr device_write_rule of(write_policy policy, std::uint32_t selective_hits) noexcept {
    return {writes_on_commit(policy), policy == write_policy::write_through_selective ? selective_hits : 0};
  }

  /// So many of a device's blocks are kept free of what is nowhere else: what a burst needs is written by
  /// then.
  std::uint32_t ahead(std::uint32_t blocks) const noexcept {
    constexpr std::uint32_t share = 8;
    return hits > 0 ? 0 : std::max(1u, blocks / share);
  }
};

/// Lends a device's blocks to passes and keeps what they hold. A full block whose key is known is shared by
/// everybody with that prefix, whichever request or worker filled it; the blocks of a sequence behind those
/// are kept under its name. Blocks that nobody uses leave least recently used first, a child before its
/// parent, so that what stays is always a prefix.
///
/// **One tree**: what it holds is the device's tier of the node's `prefix_tree`, so a request's use of a
/// prefix counts here, whoever it is for, and what the tiers below have need not be asked: a block that one
/// of them has is written, and when the last of them lets go of it since the device gives it back, it no
/// longer is.
///
/// What passes make may **stay**: the host's memory does not get it, and the sequence keeps all of its
/// blocks, from pass to pass, until it is `let_go`. So nothing that is nowhere else is taken from who still
/// goes on with it; and room for one longest sequence is never given to stayers, so that everybody gets on.
/// What is left behind is unwritten: it leaves as the rest does, so it is written before (`next_write`), or
/// lost.
///
/// Decides only; whoever asks moves the bytes. @thread One at a time, who holds the tree's mutex where others
/// share the tree. @cost O(blocks of the sequence) a call.
class kv_residency {
 public:
  /// @param blocks        of the device; >= 1.
  /// @param block_tokens  >= 1. @param spare  blocks that are never held by
  /// those who stay.
  /// @param tree     of all tiers of the node; null: one of its own.
  /// @param offered  whether others may find here what is nowhere else. If not, all of it is in memory.
  kv_residency(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t spare = 0,
               std::shared_ptr<prefix_tree> tree = {}, bool offered = true);

  /// What a pass needs room for: positions [0, end), of which those before `start` are settled.
  struct wish {
    /// Names who goes on with it from pass to pass; 0: nobody. Equal names mean equal positions before
    /// `start`.
    std::uint64_t sequence = 0;
    /// Of the leading blocks, as far as they are known; valid until `give_back`.
    std::span<const block_key> keys;
    std::uint32_t start = 0;
    std::uint32_t end = 0;  ///< > start, but for `expect`
    bool may_stay = false;  ///< what the pass makes need not be in the host's
                            ///< memory; of a named sequence
  };
  struct place {
    std::uint64_t ticket = 0;  ///< for `give_back`
    /// Indices in [0, blocks) of positions 0 to `end`; until `give_back`. Those with a position from `start`
    /// on are this ticket's alone.
    std::span<const std::uint32_t> blocks;
    std::uint32_t valid = 0;  ///< leading positions that the blocks hold already; at most `start`
    /// Positions from here to `end` have to be in the host's memory when the
    /// pass is over: `end`, they stay; else `start`, or less if what the passes
    /// before made had stayed.
    std::uint32_t write_from = 0;
  };

  /// @returns nothing if the blocks that no ticket uses do not suffice.
  std::optional<place> take(const wish& w);
  /// Room for positions [0, end) of a sequence that has not begun, which come here from the host's memory
  /// beside all passes: as `take`, but only of what those who stay may have, so that passes get on however
  /// many wait.
  /// @pre `start == end`. @returns nothing if there is no such room, or if the sequence has stayed here.
  std::optional<place> expect(const wish& w);
  /// Of what was taken, positions before `valid` are held now: at least the place's own.
  void give_back(std::uint64_t ticket, std::uint32_t valid);

  /// Whether the sequence keeps what its passes made, which the host's memory does not have.
  bool stays(std::uint64_t sequence) const { return stays_.contains(sequence); }
  /// Leading ones that are here.
  std::uint32_t match(std::span<const block_key> keys) const noexcept;
  /// Leading blocks of a sequence that has not begun, by their keys, are its
  /// own from now on, as if its passes had made them. @param from  so many of
  /// them it has elsewhere.
  /// @param hot  uses after which a block is worth writing; 0: none is for
  /// that.
  /// @returns how many, if it is more than that; else 0.
  std::uint32_t adopt(std::uint64_t sequence, std::span<const block_key> keys, std::uint32_t from,
                      std::uint32_t hot);
  /// The sequence goes on no more: its blocks are everybody's. Unknown ones are
  /// ignored.
  void let_go(std::uint64_t sequence);

  /// Blocks that are to be in the host's memory, parents first, and what they
  /// hold; nobody writes to them and they stay where they are until `wrote`.
  struct write {
    struct item {
      block_key key, parent;  ///< of a prompt's first block `parent` is its own
      std::uint32_t depth = 0;
      std::uint32_t block = 0;
    };
    std::uint64_t id = 0;
    std::vector<item> chain;  ///< the leading ones may be there already
  };
  /// The coldest chain that is not written, if the next `ahead` blocks could
  /// not be had at once without losing anything; before it, those that were
  /// used often enough. @cost O(blocks) where any is not written.
  std::optional<write> next_write(std::uint32_t ahead);
  /// The first `count` of the chain are in the host's memory.
  void wrote(std::uint64_t id, std::uint32_t count);
  /// Somebody needs these in the host's memory, which has the first `from` of them: they are written next.
  /// @returns `match(keys)`.
  std::uint32_t want(std::span<const block_key> keys, std::uint32_t from);

  /// Nothing that is not lent is held any longer.
  void forget();
  /// The device's memory is gone, and who used it.
  void clear();

  std::uint32_t blocks_for(std::uint32_t tokens) const noexcept;
  struct block_range {
    std::uint32_t first = 0, last = 0;  ///< [first, last)
    std::uint32_t size() const noexcept { return last - first; }
  };
  /// Blocks that must come from elsewhere before positions [0, start) can be read of a place that holds
  /// `valid` of them: whole ones, since where they come from holds their beginning, too.
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
    bool idle = false;       ///< it holds something, and nobody uses it
    bool named = false;      ///< everybody finds it by its key
    /// In the tree, if it has a key or is part of an end.
    prefix_tree::handle place = prefix_tree::none;
    std::uint64_t sequence = 0;  ///< whose end it is part of, if it has no key
    std::uint32_t depth = 0;     ///< in its sequence
    std::uint32_t uses = 0;      ///< of sequences that began with it
    std::uint32_t writing = 0;   ///< chains under way that have it
  };
  /// What a sequence keeps from pass to pass.
  struct stay {
    std::vector<std::uint32_t> blocks;  ///< all of its, each with a pin
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
    std::optional<stay> before;  ///< it stayed
    bool stays = false;          ///< it will
    bool ends = false;           ///< let go meanwhile
    bool expected = false;       ///< no pass has it: counted with those who stay
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
  /// Memory does not have it. If the tree says otherwise, it has it again.
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
  prefix_tree::tier& order_;             ///< of blocks with something in them; pinned: not to leave
  std::vector<std::uint32_t> in_place_;  ///< block by its handle
  bool offered_;
  std::uint32_t spare_;
  std::uint32_t idle_ = 0;     ///< blocks
  std::uint32_t staying_ = 0;  ///< blocks of sequences that stay, once for each
  std::uint64_t lost_ = 0;
  std::unordered_map<std::uint64_t, stay> stays_;  ///< by sequence, but for those with a ticket
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> writes_;
  std::vector<block_key> hot_;  ///< used often enough, and not written
  std::uint64_t next_write_ = 1;
  std::unordered_map<std::uint64_t, tail> tails_;
  std::unordered_map<std::uint64_t, taken> tickets_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace mooncaf
