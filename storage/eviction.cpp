#include "storage/eviction.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

eviction_index::eviction_index(eviction_options options) : options_(options) {}

eviction_index::handle eviction_index::node_for(const block_key& key) {
  return index_.find_or_insert(
      key, [this](handle h) -> const block_key& { return keys_[h]; },
      [&](std::uint32_t tag) { return new_node(key, tag); });
}

eviction_index::handle eviction_index::new_node(const block_key& key, std::uint32_t tag) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<handle>(nodes_.size()));
    nodes_.emplace_back();
    keys_.emplace_back();
    parents_.push_back(none);
    victims_.bound(nodes_.size());
    if (has_spare_) spare_.bound(nodes_.size());
  }
  const handle h = unused_.back();
  unused_.pop_back();
  nodes_[h] = {};
  nodes_[h].tag = tag;
  keys_[h] = key;
  return h;
}

eviction_index::handle eviction_index::parent_for(const block_key& key) {
  if (latest_ != none && nodes_[latest_].resident && keys_[latest_] == key) return latest_;
  return node_for(key);
}

void eviction_index::forget(handle h) {
  index_.erase(nodes_[h].tag, h);
  unused_.push_back(h);
}

eviction_index::handle eviction_index::insert(const block_key& key, const block_key& parent,
                                              std::uint32_t depth, std::uint64_t now) {
  const handle h = node_for(key);
  if (nodes_[h].resident) {
    touch(h, now);
  } else {
    make_resident(h, depth == 0 || parent == key ? none : parent_for(parent), depth, now);
    refresh(h);
  }
  return h;
}

void eviction_index::insert(std::span<const block_key> prompt, std::uint32_t from, std::uint64_t now) {
  handle last = none;
  for (auto i = from; i < prompt.size(); ++i) {
    const handle h = node_for(prompt[i]);
    if (nodes_[h].resident) {
      touch(h, now);
      if (last != none) refresh(last);
    } else {
      const bool is_first = i == 0 || prompt[i - 1] == prompt[i];
      make_resident(h, is_first ? none : last != none ? last : parent_for(prompt[i - 1]), i, now);
    }
    last = h;
  }
  if (last != none) refresh(last);
}

/// All but telling the victims of the new block itself: it may get a child at once.
void eviction_index::make_resident(handle h, handle parent, std::uint32_t depth, std::uint64_t now) {
  node& n = nodes_[h];
  parents_[h] = parent;
  n.used = now;
  latest_use_ = std::max(latest_use_, now);
  n.depth = depth;
  n.frequency = 1;
  n.resident = 1;
  ++resident_;
  latest_ = h;
  if (parent == none) return;
  ++nodes_[parent].children;
  refresh(parent);
}

eviction_index::handle eviction_index::find(const block_key& key) const noexcept {
  const handle h = known(key);
  return h != none && nodes_[h].resident ? h : none;
}

void eviction_index::touch(handle h, std::uint64_t now) {
  ++nodes_[h].frequency;
  keep_warm(h, now);
}

void eviction_index::keep_warm(handle h, std::uint64_t now) {
  node& n = nodes_[h];
  n.used = std::max(n.used, now);
  latest_use_ = std::max(latest_use_, now);
  // A use only ever makes a block worth more.
  if (auto& heap = heap_of(n); heap.contains(h)) heap.raise(h, rank_of(n));
}

void eviction_index::pin(handle h) {
  if (nodes_[h].pins++ == 0) {
    ++pinned_;
    refresh(h);
  }
}

void eviction_index::unpin(handle h) {
  if (nodes_[h].pins != 0 && --nodes_[h].pins == 0) {
    --pinned_;
    refresh(h);
  }
}

void eviction_index::set_copy(handle h, copy_kind kind) {
  node& n = nodes_[h];
  if (copy(h) == kind) return;
  if (kind == copy_kind::elsewhere && !std::exchange(has_spare_, true)) spare_.bound(nodes_.size());
  const bool listed = heap_of(n).contains(h);
  if (listed) heap_of(n).remove(h);
  elsewhere_ += kind == copy_kind::elsewhere ? 1 : 0;
  elsewhere_ -= lies_elsewhere(n) ? 1 : 0;
  n.copy = static_cast<std::uint32_t>(kind);
  if (listed) heap_of(n).push(h, rank_of(n));
}

bool eviction_index::spare_goes_first() const noexcept {
  const node &copy = nodes_[spare_.front()], &alone = nodes_[victims_.front()];
  if (alone.copy != 0 && options_.copies_first) return false;  // it comes again
  if (options_.policy != eviction_policy::lru && copy.frequency != alone.frequency)
    return copy.frequency < std::uint64_t{alone.frequency} * options_.copy_age;
  return (latest_use_ - copy.used) * options_.copy_age >= latest_use_ - alone.used;
}

std::uint64_t eviction_index::oldest_use() const noexcept {
  auto oldest = latest_use_;
  for (const auto* heap : {&victims_, &spare_})
    if (!heap->empty()) oldest = std::min(oldest, nodes_[heap->front()].used);
  return oldest;
}

void eviction_index::erase(handle h) {
  node& n = nodes_[h];
  if (n.pins != 0) --pinned_;
  n.pins = 0;
  n.resident = 0;
  --resident_;
  const handle above = std::exchange(parents_[h], none);
  if (above != none) --nodes_[above].children;
  auto& heap = heap_of(n);
  if (above != none && heap.contains(h) && &heap_of(nodes_[above]) == &heap && eligible(nodes_[above]) &&
      !heap.contains(above)) {
    heap.replace(h, above, rank_of(nodes_[above]));  // the victim's parent is the next leaf
  } else {
    refresh(h);
    if (above != none) refresh(above);
  }
  elsewhere_ -= lies_elsewhere(n) ? 1 : 0;
  n.copy = 0;
  if (above != none) drop_if_unused(above);
  drop_if_unused(h);
}

void eviction_index::change(handle h, bool wanted) {
  auto& heap = heap_of(nodes_[h]);
  if (wanted) {
    heap.push(h, rank_of(nodes_[h]));
  } else {
    heap.remove(h);
  }
}

bool eviction_index::consistent() const {
  std::size_t resident = 0, pinned = 0, in_index = 0, elsewhere = 0;
  std::vector<std::uint32_t> children(nodes_.size(), 0);
  for (handle h = 0; h < nodes_.size(); ++h)
    if (nodes_[h].resident && parents_[h] != none) ++children[parents_[h]];
  for (handle h = 0; h < nodes_.size(); ++h) {
    const node& n = nodes_[h];
    if (n.children != children[h]) return false;
    resident += n.resident;
    elsewhere += lies_elsewhere(n) ? 1 : 0;
    pinned += n.resident && n.pins != 0;
    if (n.resident || n.children != 0) {
      ++in_index;
      if (known(keys_[h]) != h) return false;
    }
    if (eligible(n) != heap_of(n).contains(h)) return false;
    if (has_spare_ && lies_elsewhere(n) ? victims_.contains(h) : has_spare_ && spare_.contains(h))
      return false;
  }
  return resident == resident_ && pinned == pinned_ && elsewhere == elsewhere_ && in_index == index_.size() &&
         victims_.consistent([this](handle h) { return rank_of(nodes_[h]); }) &&
         spare_.consistent([this](handle h) { return rank_of(nodes_[h]); });
}

}  // namespace mooncaf
