#pragma once
// Which KV block to give up next. Pure bookkeeping over keys: no memory, no I/O, no clock, so that a
// simulator can replay a trace through the very code that a cache shard runs. Depends on runtime/base alone.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/prefetch.hpp"
#include "runtime/base/tag_index.hpp"
#include "storage/victim_heap.hpp"

namespace mooncaf {

/// Order in which blocks are given up.
enum class eviction_policy : std::uint8_t {
  lru,           ///< least recently used
  lfu,           ///< least frequently used, then least recently; the count is forgotten with the block
  length_aware,  ///< least frequently used, then latest in its request, then least recently
};

constexpr std::string_view to_string(eviction_policy p) noexcept {
  switch (p) {
    case eviction_policy::lru:
      return "lru";
    case eviction_policy::lfu:
      return "lfu";
    case eviction_policy::length_aware:
      return "length_aware";
  }
  return "unknown";
}

struct eviction_options {
  eviction_policy policy = eviction_policy::lru;
  /// A block with a resident child is never a victim, so that a prefix never gets a hole. Off only to
  /// compare.
  bool leaf_first = true;
  /// What comes again (`copy_kind`) is given up before what is here alone. Off only to compare.
  bool copies_first = true;
  /// What lies elsewhere, too, goes as if it had not been used for so many times as long (least frequently
  /// used first: as if it had been used so many times less often). 1: it makes no difference.
  std::uint32_t copy_age = 4;
};

/// Where else a block is.
enum class copy_kind : std::uint8_t {
  alone,        ///< nowhere, as far as is known
  elsewhere,    ///< on another node, which keeps it
  comes_again,  ///< in a tier of this node that gives it back before it lets go of it
};

/// The resident blocks of one tier, and the next victim among them.
///
/// Blocks form a forest by their parents' keys. A parent need not be resident (it may live in another tier,
/// or come later); its children are counted all the same. A handle stays valid until its block is erased.
/// @thread  not synchronised.  @cost O(1) expected lookup, O(log n) per change; about 70 bytes a block.
/// @source  Mooncake (arXiv 2407.00079), section 4 and Table 1: LRUCache, LFUCache, LengthAwareCache.
class eviction_index {
 public:
  using handle = std::uint32_t;
  static constexpr handle none = 0xFFFFFFFFu;

  explicit eviction_index(eviction_options options = {});

  /// Adds a block, used once. `parent` is ignored for the first block of a prompt (depth 0).
  /// @param depth  position of the block in its prompt, from 0.
  /// @param now    logical time; ties give up the deeper block first. Earlier than the latest of a block that
  ///               was used then, in another tier.
  /// @returns its handle; for a block that is resident already it counts as a touch.
  handle insert(const block_key& key, const block_key& parent, std::uint32_t depth, std::uint64_t now);
  /// Adds the blocks of a prompt from `from` on, in order, as `insert` of each would.
  void insert(std::span<const block_key> prompt, std::uint32_t from, std::uint64_t now);
  handle find(const block_key& key) const noexcept;
  /// Brings what `find`, `insert` or `erase` will need of `key` near.
  void prefetch(const block_key& key) const noexcept { index_.prefetch(tag_index::tag_of(key)); }
  /// … and, once that is here, what is known about the block.
  void prefetch_block(const block_key& key) const noexcept {
    if (const handle h = index_.guess(key); h != none) prefetch(h);
  }
  void prefetch(handle h) const noexcept {
    mooncaf::prefetch(&nodes_[h]);
    mooncaf::prefetch(&keys_[h]);
    victims_.prefetch(h);
  }
  /// Once a block is here, what `erase` will need besides.
  void prefetch_erase(handle h) const noexcept { index_.prefetch(nodes_[h].tag); }

  /// Counts a use at `now`.
  void touch(handle h, std::uint64_t now);
  /// It is in use still at `now`, which is no further use.
  void keep_warm(handle h, std::uint64_t now);
  /// A pinned block is no victim; pins nest.
  void pin(handle h);
  void unpin(handle h);
  /// Says where else the block is. One that is inserted is alone.
  void set_copy(handle h, copy_kind copy);
  /// Forgets a block (pinned or not), its frequency included.
  void erase(handle h);

  /// The block to give up next, or `none` if every block is pinned or has a resident child. O(1).
  handle victim() const noexcept {
    if (!spare_.empty() && (victims_.empty() || spare_goes_first())) return spare_.front();
    return victims_.empty() ? none : victims_.front();
  }
  /// Whether the victim leaves before a block that was used longer ago, since that is nowhere else.
  bool victim_spares_another() const noexcept {
    if (spare_.empty() || victims_.empty() || !spare_goes_first()) return false;
    return rank_of(nodes_[victims_.front()]) < rank_of(nodes_[spare_.front()]);
  }
  /// Goes over `steps` blocks from `cursor` on, which moves to where it stopped, `none` at the end, and calls
  /// `visit(handle)` for those of them that may be given up and are so cold that it matters whether they lie
  /// elsewhere, too.
  template <class F>
  void visit_cold(handle& cursor, std::size_t steps, F&& visit) const {
    const auto coldest = latest_use_ - std::min(latest_use_, oldest_use());
    for (; steps > 0 && cursor < nodes_.size(); --steps, ++cursor) {
      const node& n = nodes_[cursor];
      if (!eligible(n) || n.copy == static_cast<std::uint32_t>(copy_kind::comes_again)) continue;
      if (options_.policy != eviction_policy::lru || (latest_use_ - n.used) * options_.copy_age >= coldest)
        visit(cursor);
    }
    if (cursor >= nodes_.size()) cursor = none;
  }

  const block_key& key(handle h) const noexcept { return keys_[h]; }
  /// Key of its parent; its own if it has none.
  const block_key& parent_key(handle h) const noexcept {
    return keys_[parents_[h] == none ? h : parents_[h]];
  }
  /// The block before it, resident or only known; `none` for the first one of a prompt.
  handle parent(handle h) const noexcept { return parents_[h]; }
  /// Whether a block, which is the parent of another, is here itself.
  bool resident(handle h) const noexcept { return nodes_[h].resident != 0; }
  std::uint32_t depth(handle h) const noexcept { return nodes_[h].depth; }
  std::uint32_t frequency(handle h) const noexcept { return nodes_[h].frequency; }
  copy_kind copy(handle h) const noexcept { return static_cast<copy_kind>(nodes_[h].copy); }
  std::uint64_t last_used(handle h) const noexcept { return nodes_[h].used; }
  std::uint32_t pins(handle h) const noexcept { return nodes_[h].pins; }
  /// Resident blocks whose parent is `key`, resident itself or not.
  std::uint32_t children_of(const block_key& key) const noexcept {
    const handle h = known(key);
    return h == none ? 0 : nodes_[h].children;
  }
  /// Resident blocks whose parent this is.
  std::uint32_t children(handle h) const noexcept { return nodes_[h].children; }

  std::size_t size() const noexcept { return resident_; }
  /// Blocks of `copy_kind::elsewhere`.
  std::size_t elsewhere() const noexcept { return elsewhere_; }
  /// Blocks that may be given up now; with leaf-first the unpinned leaves.
  std::size_t candidates() const noexcept { return victims_.size() + spare_.size(); }
  /// Resident blocks with at least one pin.
  std::size_t pinned() const noexcept { return pinned_; }
  const eviction_options& options() const noexcept { return options_; }

  /// Recounts everything; for tests. @returns false if a count, a heap position or the heap order is wrong.
  bool consistent() const;

 private:
  // Two share a cache line.
  struct alignas(32) node {
    std::uint64_t used = 0;  // when last
    std::uint32_t depth = 0;
    std::uint32_t frequency = 0;
    std::uint32_t children = 0;
    std::uint32_t tag = 0;  // of its key
    std::uint32_t pins : 29 = 0;
    std::uint32_t copy : 2 = 0;      // copy_kind
    std::uint32_t resident : 1 = 0;  // 0: only known as the parent of a resident block
  };
  static_assert(sizeof(node) == 32);

  victim_rank rank_of(const node& n) const noexcept {
    const std::uint32_t shallow = ~n.depth;  // deeper blocks rank lower, so they go first
    const bool comes_again = n.copy == static_cast<std::uint32_t>(copy_kind::comes_again);
    const std::uint64_t alone = std::uint64_t{!comes_again || !options_.copies_first} << 63;
    if (options_.policy == eviction_policy::lru) return {alone | n.used, shallow};
    const std::uint64_t uses = alone | std::uint64_t{n.frequency & 0x7FFFFFFFu} << 32;
    if (options_.policy == eviction_policy::lfu) return {uses | n.used >> 32, n.used << 32 | shallow};
    return {uses | shallow, n.used};
  }
  bool eligible(const node& n) const noexcept {
    return n.resident && n.pins == 0 && (n.children == 0 || !options_.leaf_first);
  }
  bool lies_elsewhere(const node& n) const noexcept {
    return n.copy == static_cast<std::uint32_t>(copy_kind::elsewhere);
  }
  victim_heap& heap_of(const node& n) noexcept { return lies_elsewhere(n) ? spare_ : victims_; }
  const victim_heap& heap_of(const node& n) const noexcept { return lies_elsewhere(n) ? spare_ : victims_; }
  /// Of the coldest in either heap.
  bool spare_goes_first() const noexcept;
  std::uint64_t oldest_use() const noexcept;
  handle known(const block_key& key) const noexcept {
    return index_.find(key, [this](handle h) -> const block_key& { return keys_[h]; });
  }
  handle node_for(const block_key& key);
  handle new_node(const block_key& key, std::uint32_t tag);
  handle parent_for(const block_key& key);
  void make_resident(handle h, handle parent, std::uint32_t depth, std::uint64_t now);
  void drop_if_unused(handle h) {
    if (!nodes_[h].resident && nodes_[h].children == 0) forget(h);
  }
  void forget(handle h);
  /// Puts a block among the victims, or takes it out, as it should be.
  void refresh(handle h) {
    const bool wanted = eligible(nodes_[h]);
    if (wanted != heap_of(nodes_[h]).contains(h)) change(h, wanted);
  }
  void change(handle h, bool wanted);

  eviction_options options_;
  std::vector<node> nodes_;  // by handle, as the next two: what a change seldom needs lies apart
  std::vector<block_key> keys_;
  std::vector<handle> parents_;  // one can look far up a prompt and touch few lines
  std::vector<handle> unused_;
  tag_index index_;
  victim_heap victims_;
  victim_heap spare_;  // of those that lie elsewhere, too; knows no blocks before there is one
  bool has_spare_ = false;
  std::uint64_t latest_use_ = 0;
  handle latest_ = none;  // inserted: likely the parent of what comes next
  std::size_t resident_ = 0;
  std::size_t pinned_ = 0;
  std::size_t elsewhere_ = 0;
};

}  // namespace mooncaf
