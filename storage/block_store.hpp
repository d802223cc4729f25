#pragma once
// The DRAM tier of a node: which owner may use which slot, which slots hold published blocks, which give way.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "storage/block_allocator.hpp"
#include "storage/prefix_tree.hpp"

namespace mooncaf {

/// One attempt at one request, on this node: it reserves and pins. Never reused after its end. Zero is no
/// owner.
using owner_id = basic_id<struct owner_tag>;

/// How a commit ended.
enum class commit_outcome : std::uint8_t {
  published,  ///< the block is found under its key; the committer keeps it pinned until it lets go
  duplicate,  ///< the key is in DRAM already; the slot stays the owner's own and is freed when it lets go
  orphan,     ///< the block before it is in no tier, so this one is out of reach; kept as for
              ///< `duplicate`
};

/// Leading blocks of a prompt that this node holds.
struct held_prefix {
  std::uint32_t dram = 0;  ///< leading blocks in DRAM
  std::uint32_t ssd = 0;   ///< blocks right behind them that are in some tier, the first of them on SSD only

  std::uint32_t total() const noexcept { return dram + ssd; }
};

/// A published block that may be read until its pin is released.
struct pinned_block {
  block_key key;
  slot_ref slot;
  std::uint64_t checksum = 0;
};

/// The leading DRAM run of the keys asked for, pinned, and the blocks on SSD behind it.
struct pinned_blocks {
  pin_id id;  ///< zero if nothing was pinned
  std::vector<pinned_block> blocks;
  std::vector<block_key> to_promote;  ///< keys behind the run that are held, but must be read from SSD first
};

/// Where every slot is. `free + reserved + committed + private_ + quarantined + withheld == total`, always.
struct slot_counts {
  std::size_t total = 0;
  std::size_t free = 0;
  std::size_t reserved = 0;     ///< promised to an owner, contents unpublished
  std::size_t committed = 0;    ///< published; of these
  std::size_t pinned = 0;       ///<   cannot be evicted now
  std::size_t private_ = 0;     ///< complete, but a duplicate or an orphan: its owner's alone
  std::size_t quarantined = 0;  ///< given up by its owner while a peer may still write it
  std::size_t withheld = 0;     ///< no owner's: their memory is used for something else
  std::size_t owners = 0;       ///< owners that hold anything
  std::size_t pins = 0;         ///< live pin ids

  bool add_up() const noexcept {
    return free + reserved + committed + private_ + quarantined + withheld == total;
  }
};

/// Counters since the start, in blocks.
struct store_stats {
  std::uint64_t hits_dram = 0;
  std::uint64_t hits_ssd = 0;
  std::uint64_t misses = 0;   ///< asked for in a pin, behind the last block held
  std::uint64_t commits = 0;  ///< published
  std::uint64_t duplicates = 0;
  std::uint64_t orphans = 0;
  std::uint64_t evictions = 0;       ///< left DRAM; of these
  std::uint64_t evictions_lost = 0;  ///<   were on no other tier
  std::uint64_t reserve_failures = 0;
  std::uint64_t expired_owners = 0;
};

struct block_store_options {
  eviction_options eviction;
  std::size_t max_pending_events = 1 << 16;
};

/// A block that this node has in memory, on SSD or both.
struct held_block {
  static constexpr std::uint32_t no_slot = 0xFFFFFFFFu;

  block_name name;
  std::uint64_t checksum = 0;    ///< checksum64 of the block's bytes
  std::uint32_t slot = no_slot;  ///< DRAM slot
  bool on_ssd = false;           ///< a verified write has been acknowledged

  bool in_dram() const noexcept { return slot != no_slot; }
};

/// The authority on the DRAM blocks of one node: the DRAM tier of its prefix tree, with slots, pins and
/// leases. A pure state machine: it never touches the bytes, reads no clock and does no I/O.
/// ```
///            reserve                commit                  last pin gone
///   free ──────────────► reserved ──────────► committed+pinned ◄────────► evictable
///    ▲                    │    │ commit of a known key       pin              │
///    │    release, expire │    └──────────► private                           │
///    ├────────────────────┴──────────────────┘                                │
///    │    the same while fenced: ──► quarantined ── confirm ──► free          │
///    └────────────────────────────── evict ◄──────────────────────────────────┘
/// ```
/// Everything that is held is held by an **owner**, under one lease per owner: `renew` moves its deadline,
/// `expire` ends owners that missed it. Ending an owner (`release_all`, `expire`) gives back all it reserved,
/// committed or pinned, is idempotent, and is the one call that every terminal path of a request makes.
///
/// **Fencing**: between `fence(owner)` and `confirm(owner)` a peer may write into the owner's slots. A slot
/// that the owner lets go meanwhile is not reused before `confirm`, however long that takes.
/// @thread  Owned by the CACHE SHARD, which holds the tree's mutex where others share the tree.
/// @cost  O(1) expected per block, O(log n) where eviction order changes; `expire` is O(owners).
class block_store {
 public:
  /// @param tree  of all tiers of the node; null: one of its own.
  explicit block_store(block_allocator slots, block_store_options options = {},
                       std::shared_ptr<prefix_tree> tree = {});

  // ---- owners and their slots ----

  /// Promises `count` anonymous slots to `owner`, all or none, and extends its lease to `deadline` at least.
  /// Evicts as needed; a reservation that fails after all may have evicted.
  /// @error `ec::out_of_space` with the counts, `ec::invalid_argument` for owner zero, `ec::cancelled` for an
  /// owner
  ///        that has ended and waits for `confirm`.
  result<std::vector<slot_ref>> reserve(owner_id owner, std::size_t count, time_point deadline);

  /// Names a reserved slot of `owner` and publishes it, pinned by the owner. The bytes must not change any
  /// more. Repeating a commit that published is harmless. That it comes is a use, unless the device has it.
  /// @param checksum  checksum64 of the block's bytes.
  /// @error `ec::not_found` if the slot is not reserved by this owner, `ec::invalid_argument` if `depth`
  /// contradicts
  ///        the parent's.
  result<commit_outcome> commit(owner_id owner, std::uint32_t slot, const block_name& name,
                                std::uint64_t checksum);

  /// Slots that `from` reserved, or committed without publishing them, are the owner's `to` from now on.
  /// @returns false, and changes nothing, if one of them is not such a slot, or `from` has ended or is
  /// fenced.
  bool hand_over(owner_id from, owner_id to, std::span<const std::uint32_t> slots, time_point deadline);
  /// The owner lets go of some slots that it reserved or committed. Slots that it does not hold are ignored.
  void release(owner_id owner, std::span<const std::uint32_t> slots);
  /// Ends the owner. Unknown owners are ignored, since release races expiry.
  void release_all(owner_id owner);
  /// Moves the lease to `deadline`, if later. @returns false for an unknown or ended owner.
  bool renew(owner_id owner, time_point deadline);
  /// Ends every owner with a deadline before `now`. @returns the owners.
  std::vector<owner_id> expire(time_point now);

  /// From now on a peer may write into this owner's slots.
  void fence(owner_id owner);
  /// The owner's peers have stopped or their links are down: the slots it left behind are free.
  void confirm(owner_id owner);

  // ---- published blocks ----

  /// The part of `keys` (prompt order) that is held; changes nothing.
  held_prefix match(std::span<const block_key> keys) const noexcept;
  /// Pins the leading DRAM run for `owner`, counts the use of all leading blocks in any tier, and reports the
  /// blocks on SSD behind the run.
  /// @param max_to_promote  blocks behind the run to report at most; the others count as misses.
  /// @error as for `reserve`.
  result<pinned_blocks> pin(std::span<const block_key> keys, owner_id owner, time_point deadline,
                            std::size_t max_to_promote = ~std::size_t{0});
  /// A pin without blocks yet, for `pin_one`. Ends with its owner like any other.
  /// @error as for `reserve`.
  result<pin_id> open_pin(owner_id owner, time_point deadline);
  /// Adds one published block, wherever it stands in its prompt, to a live pin. Counts no use.
  /// @returns false if the block is not in DRAM or the pin is gone.
  bool pin_one(const block_key& key, pin_id into);
  /// Unknown pins are ignored, since release races expiry.
  void release(pin_id pin);
  bool pinned(pin_id pin) const noexcept { return pins_.contains(pin); }

  /// Blocks that a pin counted as misses are read from SSD after all.
  void count_read(std::size_t blocks) noexcept {
    stats_.hits_ssd += blocks;
    count_elsewhere(blocks);
  }
  /// Blocks that a pin counted as misses were found after all, in none of the tiers here.
  void count_elsewhere(std::size_t blocks) noexcept {
    stats_.misses -= std::min<std::uint64_t>(stats_.misses, blocks);
  }

  std::optional<held_block> find(const block_key& key) const noexcept;
  /// Calls `visit(const held_block&)` for every block that is in memory or on SSD, in no order.
  template <class F>
  void for_each(F&& visit) const {
    for (prefix_tree::handle h = 0; h < tree_->bound(); ++h)
      if (tree_->shown(h).meets(kept)) visit(at(h));
  }
  slot_ref slot(std::uint32_t index) const noexcept { return slots_.at(index); }
  std::vector<block_event> drain_events() { return tree_->drain_events(); }
  block_snapshot snapshot() const { return tree_->snapshot(); }

  // ---- for the tier below ----

  /// The block that would be evicted next.
  std::optional<block_key> next_victim() const noexcept;
  /// Evicts the next victim. @returns false if there is none.
  bool evict_one();
  std::size_t free_slots() const noexcept { return slots_.free_count(); }
  prefix_tree& tree() noexcept { return *tree_; }
  const prefix_tree& tree() const noexcept { return *tree_; }
  /// A block in memory or on SSD. @pre it is there
  held_block at(prefix_tree::handle h) const noexcept;
  /// Notes the checksum of a block that has come to SSD.
  void set_checksum(prefix_tree::handle h, std::uint64_t checksum);

  // ---- memory that something else may have ----

  /// Takes so many slots more out of use, evicting as needed by the usual order; held, pinned and fenced
  /// slots stay. @param spare  slots that are to stay free, if more have to go for that. @returns the slots
  /// taken; their bytes are not needed any more.
  std::vector<std::uint32_t> withhold(std::size_t count, std::size_t spare = 0);
  /// Brings so many back into use, or all that there are.
  void give_back(std::size_t count);
  std::size_t withheld() const noexcept { return withheld_.size(); }
  /// When the next victim was used last; nothing if there is none.
  std::optional<std::uint64_t> coldest_use() const noexcept;

  // ---- seen from outside ----

  slot_counts integrity() const noexcept;
  const store_stats& stats() const noexcept { return stats_; }
  std::size_t block_bytes() const noexcept { return slots_.shape().block_bytes(); }
  const block_pieces& shape() const noexcept { return slots_.shape(); }
  /// Recounts everything from scratch; for tests and the integrity endpoint. @param why  gets the first
  /// contradiction.
  bool consistent(std::string* why = nullptr) const;

 private:
  enum class state : std::uint8_t { free, reserved, committed, private_, quarantined, withheld };
  static constexpr std::size_t states = 6;
  struct slot_record {
    state at = state::free;
    std::uint32_t held_at = 0;                       // position in its owner's list
    owner_id owner;                                  // the owner that reserved or committed it and has not
                                                     // let go
    prefix_tree::handle handle = prefix_tree::none;  // committed only
  };
  struct owner_record {
    time_point deadline{};
    bool fenced = false;
    bool ended = false;
    std::vector<std::uint32_t> slots;
    std::vector<pin_id> pins;
  };
  struct pin_record {
    owner_id owner;
    std::vector<std::uint32_t> slots;
  };
  struct content {
    std::uint64_t checksum = 0;
    std::uint32_t slot = held_block::no_slot;  // if it is in memory
  };
  static constexpr tier_set kept{storage_tier::dram, storage_tier::ssd};

  result<owner_record*> obtain(owner_id owner, time_point deadline);
  void forget_if_idle(owner_id owner);
  void detach(owner_record& owner, std::uint32_t slot);
  void let_go(owner_record& owner, std::uint32_t slot);
  void set_state(std::uint32_t slot, state to);
  void free_slot(std::uint32_t slot);
  void end(owner_id id, owner_record& owner);
  content& content_of(prefix_tree::handle h);
  void hold(prefix_tree::handle h, pin_record& pin);

  block_allocator slots_;
  std::vector<slot_record> records_;
  std::unordered_map<owner_id, owner_record> owners_;
  std::unordered_map<pin_id, pin_record> pins_;
  std::shared_ptr<prefix_tree> tree_;
  prefix_tree::tier& dram_;
  std::vector<content> contents_;  // by handle
  std::size_t count_[states] = {};
  std::vector<std::uint32_t> withheld_;
  std::uint64_t next_pin_ = 1;
  store_stats stats_;
};

}  // namespace mooncaf
