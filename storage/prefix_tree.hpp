#pragma once
// The KV blocks of a node, one node of a tree each, and in which of its tiers they lie. Pure bookkeeping over
// keys: no memory, no I/O, no clock, so that a simulator replays a trace through the very code that a node
// runs. Depends on runtime/base alone.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/block_news.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/prefetch.hpp"
#include "runtime/base/tag_index.hpp"
#include "storage/eviction.hpp"
#include "storage/victim_heap.hpp"

namespace mooncaf {

/// The place of a tier in arrays and sets of tiers.
constexpr std::size_t place_of(storage_tier t) noexcept { return static_cast<std::size_t>(t) - 1; }

/// Some of the tiers.
class tier_set {
 public:
  constexpr tier_set() = default;
  constexpr tier_set(std::initializer_list<storage_tier> some) {
    for (const auto t : some) bits_ |= bit(t);
  }
  constexpr bool has(storage_tier t) const noexcept { return (bits_ & bit(t)) != 0; }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  constexpr bool meets(tier_set other) const noexcept { return (bits_ & other.bits_) != 0; }
  constexpr tier_set with(storage_tier t, bool in) const noexcept {
    return of_bits(in ? bits_ | bit(t) : bits_ & ~bit(t));
  }
  /// One bit for each tier.
  constexpr std::uint32_t bits() const noexcept { return bits_; }
  static constexpr tier_set of_bits(std::uint32_t bits) noexcept {
    tier_set out;
    out.bits_ = bits;
    return out;
  }
  friend bool operator==(tier_set, tier_set) = default;

 private:
  static constexpr std::uint32_t bit(storage_tier t) noexcept { return 1u << place_of(t); }
  std::uint32_t bits_ = 0;
};

/// One tree of prefixes over all tiers of a node. A block has one node, wherever it lies; each tier has its
/// own pins, leaves and order, over the same heat:
/// ```
///   node: key, parent, depth, last used, uses ─┬─ device: here? pins, children here  ─► next to leave L1
///    (64 bytes)                                ├─ dram:   here? pins, children here  ─► next to leave L2
///                                              └─ ssd:    here? pins, children here  ─► next to leave SSD
/// ```
/// A use counts once, in all of them; coming to another tier is no use. A tier sees in the node whether
/// others have the block (memory has it, too; no other node has it any more).
///
/// A parent need not be here (it may live in another tier, or come later); its children are counted all the
/// same. A handle stays valid while the block is in some tier.
/// @thread  All users of a shared tree hold `mutex` for the length of a decision; a single user needs no
/// lock.
/// @cost  O(1) expected lookup, O(log n) per change; about 90 bytes a block, and 28 for each tier where it
///        is a leaf.
/// @source  Mooncake (arXiv 2407.00079), section 4 and Table 1: LRUCache, LFUCache, LengthAwareCache.
class prefix_tree {
 public:
  using handle = std::uint32_t;
  static constexpr handle none = 0xFFFFFFFFu;

  class tier;

  prefix_tree() = default;
  prefix_tree(const prefix_tree&) = delete;
  prefix_tree& operator=(const prefix_tree&) = delete;

  std::mutex& mutex() const noexcept { return mutex_; }

  /// Begins to use a tier.
  /// @param gives_back  tiers that write their blocks to this one before they let go of them, so that here
  ///                    they come again.
  tier& open(storage_tier t, eviction_options options = {}, tier_set gives_back = {});
  /// @pre open
  tier& in(storage_tier t) noexcept { return tiers_[place_of(t)]; }
  const tier& in(storage_tier t) const noexcept { return tiers_[place_of(t)]; }
  bool is_open(storage_tier t) const noexcept { return opened_.has(t); }

  /// The block, wherever it is; also one that is in no tier but has a child in one.
  handle find(const block_key& key) const noexcept {
    return index_.find(key, [this](handle h) -> const block_key& { return nodes_[h].key; });
  }
  /// Tiers in which the block can be found.
  tier_set shown(handle h) const noexcept { return shown(nodes_[h]); }
  bool shown(handle h, storage_tier t) const noexcept { return shown(h).has(t); }
  bool shown(const block_key& key, storage_tier t) const noexcept {
    const handle h = find(key);
    return h != none && shown(h, t);
  }

  const block_key& key(handle h) const noexcept { return nodes_[h].key; }
  /// The block before it, here or only known; `none` for the first one of a prompt.
  handle parent(handle h) const noexcept { return nodes_[h].parent; }
  /// Key of its parent; its own if it has none.
  const block_key& parent_key(handle h) const noexcept {
    return nodes_[nodes_[h].parent == none ? h : nodes_[h].parent].key;
  }
  std::uint32_t depth(handle h) const noexcept { return nodes_[h].depth; }
  block_name name(handle h) const noexcept { return {key(h), parent_key(h), depth(h)}; }
  std::uint32_t uses(handle h) const noexcept { return nodes_[h].uses; }
  std::uint64_t last_used(handle h) const noexcept { return nodes_[h].used; }
  /// Handles are below it.
  std::size_t bound() const noexcept { return nodes_.size(); }

  /// Counts a use at `now`, in every tier.
  void touch(handle h, std::uint64_t now) {
    ++nodes_[h].uses;
    keep_warm(h, now);
  }
  /// The block is still in use at `now`, which is no further use.
  void keep_warm(handle h, std::uint64_t now);

  /// The time in which uses are counted: it is no clock's, but that of the latest use.
  std::uint64_t time() const noexcept { return time_; }
  /// @returns one that is later than all before.
  std::uint64_t next_time() noexcept { return ++time_; }

  /// From now on changes in these tiers are told.
  /// @param pending_max  kept for `drain_events`; beyond it all are dropped, and the gap in the sequence
  /// tells the reader.
  void tell(tier_set of, std::size_t pending_max) {
    told_ = of;
    pending_max_ = pending_max;
  }
  std::vector<block_event> drain_events() { return std::exchange(pending_, {}); }
  block_snapshot snapshot() const;

  /// Brings the data that `find` needs of `key` near …
  void prefetch(const block_key& key) const noexcept { index_.prefetch(tag_index::tag_of(key)); }
  /// … and, once that is here, the block's node.
  void prefetch_block(const block_key& key) const noexcept {
    if (const handle h = index_.guess(key); h != none) prefetch(h);
  }
  void prefetch(handle h) const noexcept { mooncaf::prefetch(&nodes_[h]); }
  /// Once a block is here, the other data for letting go of it.
  void prefetch_erase(handle h) const noexcept { index_.prefetch(nodes_[h].tag); }

  /// Recounts everything; for tests. @returns false if a count, a heap position or the heap order is wrong.
  bool consistent() const;

 private:
  static constexpr std::size_t tier_count = 3;

  /// A block as one tier has it.
  struct share {
    std::uint32_t children = 0;  ///< in this tier
    std::uint32_t pins : 30 = 0;
    std::uint32_t written : 1 = 0;    ///< a tier below has it, had it, or will
    std::uint32_t elsewhere : 1 = 0;  ///< other nodes keep it, too
  };
  // A cache line.
  struct alignas(64) node {
    block_key key;
    std::uint64_t used = 0;  // when last
    handle parent = none;
    std::uint32_t depth : 26 = 0;
    std::uint32_t here : 3 = 0;   // a bit for each tier
    std::uint32_t shown : 3 = 0;  // likewise
    std::uint32_t uses = 0;
    std::uint32_t tag = 0;  // of the block's key
    std::array<share, tier_count> in;

    bool wanted() const noexcept { return (here | in[0].children | in[1].children | in[2].children) != 0; }
  };
  static_assert(sizeof(node) == 64);

  static tier_set shown(const node& n) noexcept { return tier_set::of_bits(n.shown); }
  handle node_for(const block_key& key);
  handle new_node(const block_key& key, std::uint32_t tag);
  void set_shown(handle h, storage_tier t, bool value);
  void show_watched(handle h, tier_set after);
  void tell_change(handle h, tier_set before, tier_set after, storage_tier changed);
  void forget(handle h);
  void drop_if_unwanted(handle h) {
    if (!nodes_[h].wanted()) forget(h);
  }

 public:
  /// The blocks of one tier, and the next victim among them.
  class tier {
   public:
    tier(prefix_tree& tree, storage_tier which) : tree_(&tree), which_(which), at_(place_of(which)) {}

    /// Adds a block. One that is in no tier yet has been used once, at `now`; else its heat stays, but for a
    /// later `now`. `parent` is ignored for the first block of a prompt (depth 0), and where it is known.
    /// @param depth  position of the block in its prompt, from 0.
    /// @param now    logical time; ties give up the deeper block first.
    /// @returns its handle; for a block that is here already it counts as a touch.
    handle insert(const block_key& key, const block_key& parent, std::uint32_t depth, std::uint64_t now);
    /// Adds the blocks of a prompt from `from` on, in order, as `insert` of each would.
    void insert(std::span<const block_key> prompt, std::uint32_t from, std::uint64_t now);
    /// Adds a block that cannot be found here yet. @pre it is not here
    handle insert_hidden(const block_key& key, const block_key& parent, std::uint32_t depth,
                         std::uint64_t now);
    /// The block can be found here from now on.
    void show(handle h) { tree_->set_shown(h, which_, true); }
    bool shown(handle h) const noexcept { return (tree_->nodes_[h].shown >> at_ & 1) != 0; }
    handle find(const block_key& key) const noexcept {
      const handle h = tree_->find(key);
      return h != none && here(h) ? h : none;
    }

    /// Brings near a block's node, and its place among the victims.
    void prefetch(handle h) const noexcept {
      tree_->prefetch(h);
      victims_.prefetch(h);
    }

    /// A pinned block is no victim; pins nest.
    void pin(handle h);
    void unpin(handle h);
    /// Says whether other nodes keep it, too; blocks that come again on this one are not asked about.
    void set_elsewhere(handle h, bool value);
    /// Takes it out of this tier, pinned or not; with the last tier it is forgotten, with its heat.
    void erase(handle h);
    /// Takes all out.
    void clear();

    /// For a tier that may have the only copy of a block: whether a tier below has the block, had it, or gets
    /// it. A tier below that lets go of a block because this one gives it back forgets it.
    bool written(handle h) const noexcept { return mine(h).written != 0; }
    void set_written(handle h, bool value);
    /// Blocks that are shown and not written; below, the ones without pins.
    std::size_t unwritten() const noexcept { return unwritten_; }
    std::size_t unwritten_idle() const noexcept { return unwritten_idle_; }

    /// The block to give up next, or `none` if every block is pinned or has a child here. O(1).
    handle victim() const noexcept {
      if (!spare_.empty() && (victims_.empty() || spare_goes_first())) return spare_.front();
      return victims_.empty() ? none : victims_.front();
    }
    /// Whether the victim leaves before a block that was used longer ago, since that is nowhere else.
    bool victim_spares_another() const noexcept {
      if (spare_.empty() || victims_.empty() || !spare_goes_first()) return false;
      return rank_of(tree_->nodes_[victims_.front()]) < rank_of(tree_->nodes_[spare_.front()]);
    }
    /// Goes over `steps` blocks from `cursor` on, which moves to where it stopped, `none` at the end, and
    /// calls `visit(handle)` for blocks that may be given up and are so cold that it matters whether they lie
    /// elsewhere, too.
    template <class F>
    void visit_cold(handle& cursor, std::size_t steps, F&& visit) const {
      const auto coldest = latest_use_ - std::min(latest_use_, oldest_use());
      for (; steps > 0 && cursor < tree_->nodes_.size(); --steps, ++cursor) {
        const node& n = tree_->nodes_[cursor];
        if (!eligible(n) || comes_again(n)) continue;
        if (options_.policy != eviction_policy::lru || (latest_use_ - n.used) * options_.copy_age >= coldest)
          visit(cursor);
      }
      if (cursor >= tree_->nodes_.size()) cursor = none;
    }

    copy_kind copy(handle h) const noexcept {
      const node& n = tree_->nodes_[h];
      return comes_again(n)        ? copy_kind::comes_again
             : n.in[at_].elsewhere ? copy_kind::elsewhere
                                   : copy_kind::alone;
    }
    bool here(handle h) const noexcept { return here(tree_->nodes_[h]); }
    std::uint32_t pins(handle h) const noexcept { return mine(h).pins; }
    /// Children of the block in this tier, whether or not the block itself is here.
    std::uint32_t children(handle h) const noexcept { return mine(h).children; }

    std::size_t size() const noexcept { return size_; }
    std::size_t shown_count() const noexcept { return shown_; }
    /// Blocks of `copy_kind::elsewhere`.
    std::size_t elsewhere() const noexcept { return elsewhere_; }
    /// Blocks that may be given up now; with leaf-first the unpinned leaves.
    std::size_t candidates() const noexcept { return victims_.size() + spare_.size(); }
    /// Blocks here with at least one pin.
    std::size_t pinned() const noexcept { return pinned_; }
    const eviction_options& options() const noexcept { return options_; }
    prefix_tree& tree() const noexcept { return *tree_; }

   private:
    friend class prefix_tree;

    const share& mine(handle h) const noexcept { return tree_->nodes_[h].in[at_]; }
    share& mine(handle h) noexcept { return tree_->nodes_[h].in[at_]; }
    bool here(const node& n) const noexcept { return (n.here >> at_ & 1) != 0; }
    bool is_unwritten(const node& n) const noexcept {
      return (n.shown >> at_ & 1) != 0 && !n.in[at_].written;
    }
    victim_rank rank_of(const node& n) const noexcept {
      const std::uint32_t shallow = ~n.depth;  // deeper blocks rank lower, so they go first
      const std::uint64_t alone = std::uint64_t{!options_.copies_first || !comes_again(n)} << 63;
      if (options_.policy == eviction_policy::lru) return {alone | n.used, shallow};
      const std::uint64_t uses = alone | std::uint64_t{n.uses & 0x7FFFFFFFu} << 32;
      if (options_.policy == eviction_policy::lfu) return {uses | n.used >> 32, n.used << 32 | shallow};
      return {uses | shallow, n.used};
    }
    bool eligible(const node& n) const noexcept {
      const share& s = n.in[at_];
      return here(n) && s.pins == 0 && (s.children == 0 || !options_.leaf_first);
    }
    bool comes_again(const node& n) const noexcept {
      return !gives_back_.empty() && prefix_tree::shown(n).meets(gives_back_);
    }
    victim_heap& heap_of(const node& n) noexcept { return n.in[at_].elsewhere ? spare_ : victims_; }
    const victim_heap& heap_of(const node& n) const noexcept {
      return n.in[at_].elsewhere ? spare_ : victims_;
    }
    /// Whether the coldest block of `spare_` goes before that of the other heap.
    bool spare_goes_first() const noexcept;
    std::uint64_t oldest_use() const noexcept;
    handle parent_for(const block_key& key);
    void add(handle h, const block_key& parent, std::uint32_t depth, std::uint64_t now);
    void enter(handle h, handle parent, std::uint32_t depth, std::uint64_t now);
    void count_unwritten(const node& n, int change) noexcept {
      if (!is_unwritten(n)) return;
      unwritten_ += static_cast<std::size_t>(change);
      if (n.in[at_].pins == 0) unwritten_idle_ += static_cast<std::size_t>(change);
    }
    /// The block is here, and its use was at `n.used`.
    void warmed(handle h, const node& n) {
      latest_use_ = std::max(latest_use_, n.used);
      // A use only ever makes a block worth more.
      if (eligible(n)) heap_of(n).raise(h, rank_of(n));
    }
    void bound(std::size_t count) {
      victims_.bound(count);
      if (has_spare_) spare_.bound(count);
    }
    /// Puts a block among the victims, or takes it out, as it should be.
    void refresh(handle h) {
      const node& n = tree_->nodes_[h];
      auto& heap = heap_of(n);
      const bool wanted = eligible(n);
      if (wanted == heap.contains(h)) return;
      if (wanted) heap.push(h, rank_of(n));
      else heap.remove(h);
    }
    bool consistent(std::span<const std::uint32_t> children) const;

    prefix_tree* tree_;
    storage_tier which_;
    std::size_t at_;
    eviction_options options_;
    tier_set gives_back_;
    victim_heap victims_;
    victim_heap spare_;  // blocks that lie elsewhere, too; allocated with the first
    bool has_spare_ = false;
    std::uint64_t latest_use_ = 0;
    handle latest_ = none;  // inserted: likely the parent of the next block
    std::size_t size_ = 0, shown_ = 0, pinned_ = 0, elsewhere_ = 0, unwritten_ = 0, unwritten_idle_ = 0;
  };

 private:
  mutable std::mutex mutex_;
  std::vector<node> nodes_;  // by handle
  std::vector<handle> unused_;
  tag_index index_;
  std::array<tier, tier_count> tiers_{tier{*this, storage_tier::dram}, tier{*this, storage_tier::ssd},
                                      tier{*this, storage_tier::device}};
  tier_set opened_;
  std::uint64_t time_ = 0;
  tier_set told_;
  tier_set watched_;  // other tiers' order depends on its blocks
  std::vector<block_event> pending_;
  std::size_t pending_max_ = 0;
  std::uint64_t sequence_ = 0;
};

}  // namespace mooncaf
