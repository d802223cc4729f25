#include "storage/prefix_tree.hpp"

#include <bit>

namespace mooncaf {
namespace {

/// The tier that events name as the block's.
storage_tier first_of(tier_set s) {
  using enum storage_tier;
  return s.has(dram) ? dram : s.has(ssd) ? ssd : device;
}

}  // namespace

// ---- nodes ----

prefix_tree::tier& prefix_tree::open(storage_tier t, eviction_options options, tier_set gives_back) {
  auto& opened = in(t);
  opened.options_ = options;
  opened.gives_back_ = gives_back;
  opened.bound(nodes_.size());
  opened_ = opened_.with(t, true);
  watched_ = {};
  for (const auto& each : tiers_) watched_ = tier_set::of_bits(watched_.bits() | each.gives_back_.bits());
  return opened;
}

prefix_tree::handle prefix_tree::node_for(const block_key& key) {
  return index_.find_or_insert(
      key, [this](handle h) -> const block_key& { return nodes_[h].key; },
      [&](std::uint32_t tag) { return new_node(key, tag); });
}

prefix_tree::handle prefix_tree::new_node(const block_key& key, std::uint32_t tag) {
  if (unused_.empty()) {
    // Many at a time: every tier that is open has to hear of it.
    const auto had = nodes_.size();
    nodes_.resize(had + std::max<std::size_t>(64, had / 8));
    for (auto& t : tiers_)
      if (is_open(t.which_)) t.bound(nodes_.size());
    for (auto h = nodes_.size(); h-- > had;) unused_.push_back(static_cast<handle>(h));
  }
  const handle h = unused_.back();
  unused_.pop_back();
  nodes_[h] = {};
  nodes_[h].tag = tag;
  nodes_[h].key = key;
  return h;
}

void prefix_tree::forget(handle h) {
  index_.erase(nodes_[h].tag, h);
  unused_.push_back(h);
}

void prefix_tree::keep_warm(handle h, std::uint64_t now) {
  node& n = nodes_[h];
  n.used = std::max(n.used, now);
  time_ = std::max(time_, now);
  for (std::uint32_t left = n.here; left != 0; left &= left - 1)
    tiers_[static_cast<std::size_t>(std::countr_zero(left))].warmed(h, n);
}

void prefix_tree::set_shown(handle h, storage_tier t, bool value) {
  node& n = nodes_[h];
  auto& changing = in(t);
  const auto before = shown(n), after = before.with(t, value);
  if (before == after) return;
  if (before.empty() && !watched_.has(t) && !told_.has(t)) {  // the usual case: a block in one tier, and no
                                                              // listener
    n.shown = after.bits() & 7u;
    ++changing.shown_;
    return changing.count_unwritten(n, 1);
  }
  changing.count_unwritten(n, -1);
  value ? ++changing.shown_ : --changing.shown_;
  if (watched_.has(t)) show_watched(h, after);
  else n.shown = after.bits() & 7u;
  changing.count_unwritten(n, 1);
  auto& device = in(storage_tier::device);
  if (t != storage_tier::device && before.has(storage_tier::device)) {
    if (value) device.set_written(h, true);
    // The tier below let go of it because the device gives it back.
    else if (after == tier_set{storage_tier::device} && changing.gives_back_.has(storage_tier::device))
      device.set_written(h, false);
  }
  if (told_.has(t)) tell_change(h, before, after, t);
}

/// A block that becomes a copy which comes again, or stops being one, has another place in the order.
void prefix_tree::show_watched(handle h, tier_set after) {
  node& n = nodes_[h];
  const auto before = shown(n);
  std::array<bool, tier_count> listed{};
  for (auto& t : tiers_) {
    const bool comes = after.meets(t.gives_back_);
    if (comes == before.meets(t.gives_back_) || !t.here(n)) continue;
    listed[t.at_] = t.eligible(n);
    if (listed[t.at_]) t.heap_of(n).remove(h);
    if (comes && n.in[t.at_].elsewhere) {
      n.in[t.at_].elsewhere = 0;
      --t.elsewhere_;
    }
  }
  n.shown = after.bits() & 7u;
  for (auto& t : tiers_)
    if (listed[t.at_]) t.heap_of(n).push(h, t.rank_of(n));
}

void prefix_tree::tell_change(handle h, tier_set before, tier_set after, storage_tier changed) {
  using enum storage_tier;
  constexpr tier_set kept{dram, ssd};
  if (!before.empty() && !after.empty() && first_of(before) == first_of(after)) return;
  auto what = block_change::moved;
  if (after.empty()) what = block_change::removed;
  else if (!before.meets(kept)) what = block_change::stored;
  // Half a story is worth less than none: the gap sends the reader to the snapshot, which has it all.
  if (pending_.size() >= pending_max_) pending_.clear();
  pending_.push_back({name(h), what, after.empty() ? changed : first_of(after), ++sequence_});
}

block_snapshot prefix_tree::snapshot() const {
  block_snapshot all{sequence_, {}};
  for (handle h = 0; h < nodes_.size(); ++h) {
    const auto s = shown(nodes_[h]);
    if (s.empty()) continue;
    all.blocks.push_back({name(h), block_change::stored, first_of(s), sequence_});
  }
  std::stable_sort(all.blocks.begin(), all.blocks.end(),
                   [](const auto& a, const auto& b) { return a.name.depth < b.name.depth; });
  return all;
}

// ---- one tier ----

prefix_tree::handle prefix_tree::tier::parent_for(const block_key& key) {
  if (latest_ != none && here(latest_) && tree_->nodes_[latest_].key == key) return latest_;
  return tree_->node_for(key);
}

/// All of an insertion but telling the victim heaps about the new block, which may get a child at once, and
/// about its parent.
/// @param parent  needed if the block is in no tier yet.
void prefix_tree::tier::enter(handle h, handle parent, std::uint32_t depth, std::uint64_t now) {
  node& n = tree_->nodes_[h];
  if (n.here != 0) {
    if (now > n.used) tree_->keep_warm(h, now);
  } else {
    n.parent = parent;
    n.depth = depth & 0x3FFFFFFu;
    n.used = now;
    n.uses = 1;
    tree_->time_ = std::max(tree_->time_, now);
  }
  latest_use_ = std::max(latest_use_, n.used);
  n.here = (n.here | 1u << at_) & 7u;
  ++size_;
  latest_ = h;
  if (n.parent == none) return;
  ++mine(n.parent).children;
}

void prefix_tree::tier::add(handle h, const block_key& parent, std::uint32_t depth, std::uint64_t now) {
  const bool is_known = depth == 0 || parent == tree_->nodes_[h].key || tree_->nodes_[h].here != 0;
  enter(h, is_known ? none : parent_for(parent), depth, now);
  const node& n = tree_->nodes_[h];
  const handle above = n.parent;
  if (above == none) return refresh(h);
  const node& upper = tree_->nodes_[above];
  auto& heap = heap_of(n);
  // Near in rank, it takes its parent's place, and the heap hardly moves.
  if (&heap_of(upper) == &heap && heap.contains(above) && !eligible(upper) && eligible(n))
    return heap.replace(above, h, rank_of(n));
  refresh(above);
  refresh(h);
}

prefix_tree::handle prefix_tree::tier::insert_hidden(const block_key& key, const block_key& parent,
                                                     std::uint32_t depth, std::uint64_t now) {
  const handle h = tree_->node_for(key);
  add(h, parent, depth, now);
  return h;
}

prefix_tree::handle prefix_tree::tier::insert(const block_key& key, const block_key& parent,
                                              std::uint32_t depth, std::uint64_t now) {
  const handle h = tree_->node_for(key);
  if (here(h)) {
    tree_->touch(h, now);
  } else {
    add(h, parent, depth, now);
    show(h);
  }
  return h;
}

void prefix_tree::tier::insert(std::span<const block_key> prompt, std::uint32_t from, std::uint64_t now) {
  handle last = none;
  for (auto i = from; i < prompt.size(); ++i) {
    const handle h = tree_->node_for(prompt[i]);
    if (const node& n = tree_->nodes_[h]; here(n)) {
      tree_->touch(h, now);
      if (last != none) refresh(last);
    } else {
      const bool is_first = i == 0 || prompt[i - 1] == prompt[i] || n.here != 0;
      enter(h, is_first ? none : last != none ? last : parent_for(prompt[i - 1]), i, now);
      if (const handle above = tree_->nodes_[h].parent; above != none) refresh(above);
      show(h);
    }
    last = h;
  }
  if (last != none) refresh(last);
}

void prefix_tree::tier::pin(handle h) {
  share& s = mine(h);
  if (s.pins++ != 0) return;
  ++pinned_;
  if (is_unwritten(tree_->nodes_[h])) --unwritten_idle_;
  refresh(h);
}

void prefix_tree::tier::unpin(handle h) {
  share& s = mine(h);
  if (s.pins == 0 || --s.pins != 0) return;
  --pinned_;
  if (is_unwritten(tree_->nodes_[h])) ++unwritten_idle_;
  refresh(h);
}

void prefix_tree::tier::set_elsewhere(handle h, bool value) {
  const node& n = tree_->nodes_[h];
  share& s = mine(h);
  if ((s.elsewhere != 0) == value || comes_again(n)) return;
  if (value && !std::exchange(has_spare_, true)) spare_.bound(tree_->nodes_.size());
  const bool listed = eligible(n);
  if (listed) heap_of(n).remove(h);
  s.elsewhere = value;
  value ? ++elsewhere_ : --elsewhere_;
  if (listed) heap_of(n).push(h, rank_of(n));
}

void prefix_tree::tier::set_written(handle h, bool value) {
  node& n = tree_->nodes_[h];
  count_unwritten(n, -1);
  n.in[at_].written = value;
  count_unwritten(n, 1);
}

void prefix_tree::tier::erase(handle h) {
  node& n = tree_->nodes_[h];
  tree_->set_shown(h, which_, false);
  share& s = n.in[at_];
  if (s.pins != 0) --pinned_;
  const handle above = n.parent;
  if (above != none) --mine(above).children;
  auto& heap = heap_of(n);
  const bool listed = heap.contains(h);
  s.pins = 0;
  n.here = n.here & ~(1u << at_) & 7u;
  s.written = 0;
  --size_;
  const auto& upper = tree_->nodes_[above == none ? h : above];
  if (above != none && listed && &heap_of(upper) == &heap && eligible(upper) && !heap.contains(above)) {
    heap.replace(h, above, rank_of(upper));  // the victim's parent is the next leaf
  } else {
    if (listed) heap.remove(h);
    if (above != none) refresh(above);
  }
  elsewhere_ -= s.elsewhere;
  s.elsewhere = 0;
  if (n.here != 0) return;
  n.parent = none;
  if (above != none) tree_->drop_if_unwanted(above);
  tree_->drop_if_unwanted(h);
}

void prefix_tree::tier::clear() {
  for (handle h = 0; h < tree_->nodes_.size() && size_ > 0; ++h)
    if (here(h)) erase(h);
}

bool prefix_tree::tier::spare_goes_first() const noexcept {
  const node &copy = tree_->nodes_[spare_.front()], &alone = tree_->nodes_[victims_.front()];
  if (comes_again(alone) && options_.copies_first) return false;
  if (options_.policy != eviction_policy::lru && copy.uses != alone.uses)
    return copy.uses < std::uint64_t{alone.uses} * options_.copy_age;
  return (latest_use_ - copy.used) * options_.copy_age >= latest_use_ - alone.used;
}

std::uint64_t prefix_tree::tier::oldest_use() const noexcept {
  auto oldest = latest_use_;
  for (const auto* heap : {&victims_, &spare_})
    if (!heap->empty()) oldest = std::min(oldest, tree_->nodes_[heap->front()].used);
  return oldest;
}

// ---- for tests ----

bool prefix_tree::consistent() const {
  std::vector<std::uint32_t> children(nodes_.size());
  std::size_t in_index = 0;
  for (handle h = 0; h < nodes_.size(); ++h) {
    if (!nodes_[h].wanted()) continue;
    ++in_index;
    if (find(nodes_[h].key) != h) return false;
  }
  for (const auto& t : tiers_) {
    std::ranges::fill(children, 0u);
    for (handle h = 0; h < nodes_.size(); ++h)
      if (t.here(nodes_[h]) && nodes_[h].parent != none) ++children[nodes_[h].parent];
    if (is_open(t.which_) ? !t.consistent(children) : t.size_ != 0) return false;
  }
  return in_index == index_.size();
}

bool prefix_tree::tier::consistent(std::span<const std::uint32_t> children) const {
  std::size_t size = 0, shown = 0, pinned = 0, elsewhere = 0, unwritten = 0, idle = 0;
  for (handle h = 0; h < tree_->nodes_.size(); ++h) {
    const node& n = tree_->nodes_[h];
    const share& s = n.in[at_];
    if (n.wanted() && s.children != children[h]) return false;
    if (eligible(n) != heap_of(n).contains(h)) return false;
    if (has_spare_ && (s.elsewhere ? victims_ : spare_).contains(h)) return false;
    const bool is_shown = prefix_tree::shown(n).has(which_);
    if (!here(n)) {
      if (is_shown || s.pins || s.elsewhere || s.written) return false;
      continue;
    }
    ++size;
    shown += is_shown;
    pinned += s.pins != 0;
    elsewhere += s.elsewhere;
    unwritten += is_unwritten(n);
    idle += is_unwritten(n) && s.pins == 0;
  }
  const auto rank = [this](handle h) { return rank_of(tree_->nodes_[h]); };
  return size == size_ && shown == shown_ && pinned == pinned_ && elsewhere == elsewhere_ &&
         unwritten == unwritten_ && idle == unwritten_idle_ && victims_.consistent(rank) &&
         spare_.consistent(rank);
}

}  // namespace mooncaf
