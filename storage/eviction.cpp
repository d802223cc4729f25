#include "storage/eviction.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

std::optional<eviction_policy> parse_eviction_policy(std::string_view name) noexcept {
  for (auto p : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware})
    if (name == to_string(p)) return p;
  return std::nullopt;
}

eviction_index::eviction_index(eviction_options options) : options_(options) {}

eviction_index::rank eviction_index::rank_of(const node& n, std::uint64_t now) const noexcept {
  const std::uint64_t shallow = ~std::uint64_t{n.depth};  // deeper blocks rank lower, so they go first
  switch (options_.policy) {
    case eviction_policy::lru:
      return {now, shallow, 0};
    case eviction_policy::lfu:
      return {n.frequency, now, shallow};
    case eviction_policy::length_aware:
      return {n.frequency, shallow, now};
  }
  return {};
}

bool eviction_index::eligible(const node& n) const noexcept {
  return n.resident && n.pins == 0 && (n.children == 0 || !options_.leaf_first);
}

eviction_index::handle eviction_index::node_for(const block_key& key) {
  if (const handle there = known(key); there != none) return there;
  handle h;
  if (unused_.empty()) {
    h = static_cast<handle>(nodes_.size());
    nodes_.emplace_back();
    parents_.push_back(none);
  } else {
    h = unused_.back();
    unused_.pop_back();
  }
  nodes_[h] = node{};
  nodes_[h].key = key;
  index_.insert(key, h);
  return h;
}

eviction_index::handle eviction_index::parent_for(const block_key& key) {
  if (latest_ != none && nodes_[latest_].resident && nodes_[latest_].key == key) return latest_;
  return node_for(key);
}

void eviction_index::drop_if_unused(handle h) {
  const node& n = nodes_[h];
  if (n.resident || n.children != 0) return;
  index_.erase(n.key, h);
  unused_.push_back(h);
}

eviction_index::handle eviction_index::insert(const block_key& key, const block_key& parent,
                                              std::uint32_t depth, std::uint64_t now) {
  const handle h = node_for(key);
  if (nodes_[h].resident) {
    touch(h, now);
    return h;
  }
  const handle above = depth == 0 || parent == key ? none : parent_for(parent);
  latest_ = h;
  node& n = nodes_[h];
  parents_[h] = above;
  n.depth = depth;
  n.frequency = 1;
  n.resident = 1;
  n.order = rank_of(n, now);
  ++resident_;
  if (above != none) {
    ++nodes_[above].children;
    refresh(above);
  }
  refresh(h);
  return h;
}

eviction_index::handle eviction_index::find(const block_key& key) const noexcept {
  const handle h = known(key);
  return h != none && nodes_[h].resident ? h : none;
}

void eviction_index::touch(handle h, std::uint64_t now) {
  node& n = nodes_[h];
  ++n.frequency;
  n.order = rank_of(n, now);
  // A use only ever makes a block worth more.
  if (n.heap_at != none) sift_down(n.heap_at);
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

void eviction_index::erase(handle h) {
  node& n = nodes_[h];
  if (n.pins != 0) --pinned_;
  n.pins = 0;
  n.resident = 0;
  --resident_;
  const handle above = std::exchange(parents_[h], none);
  if (above != none) --nodes_[above].children;
  if (above != none && n.heap_at != none && nodes_[above].heap_at == none && eligible(nodes_[above])) {
    heap_replace(h, above);
  } else {
    refresh(h);
    if (above != none) refresh(above);
  }
  if (above != none) drop_if_unused(above);
  drop_if_unused(h);
}

void eviction_index::refresh(handle h) {
  const bool wanted = eligible(nodes_[h]);
  const bool present = nodes_[h].heap_at != none;
  if (wanted == present) return;
  if (!wanted) return heap_remove(h);
  nodes_[h].heap_at = static_cast<std::uint32_t>(heap_.size());
  heap_.push_back(h);
  sift_up(nodes_[h].heap_at);
}

void eviction_index::heap_remove(handle h) {
  const std::uint32_t at = nodes_[h].heap_at;
  nodes_[h].heap_at = none;
  const handle last = heap_.back();
  heap_.pop_back();
  if (last == h) return;
  heap_[at] = last;
  nodes_[last].heap_at = at;
  sift_up(at);
  sift_down(nodes_[last].heap_at);
}

// The common case of a victim whose parent has become the next leaf: near in rank, so it hardly moves.
void eviction_index::heap_replace(handle out, handle in) {
  const std::uint32_t at = std::exchange(nodes_[out].heap_at, none);
  heap_[at] = in;
  nodes_[in].heap_at = at;
  sift_up(at);
  sift_down(nodes_[in].heap_at);
}

// Four children per node: half the levels of a binary heap, and the children of a node share a cache line.
void eviction_index::sift_up(std::uint32_t at) {
  const handle moving = heap_[at];
  while (at > 0) {
    const std::uint32_t above = (at - 1) / 4;
    if (nodes_[heap_[above]].order <= nodes_[moving].order) break;
    heap_[at] = heap_[above];
    nodes_[heap_[at]].heap_at = at;
    at = above;
  }
  heap_[at] = moving;
  nodes_[moving].heap_at = at;
}

void eviction_index::sift_down(std::uint32_t at) {
  const handle moving = heap_[at];
  const auto count = static_cast<std::uint32_t>(heap_.size());
  for (;;) {
    const std::uint64_t first = std::uint64_t{at} * 4 + 1;
    if (first >= count) break;
    auto best = static_cast<std::uint32_t>(first);
    const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(first + 4, count));
    for (std::uint32_t c = best + 1; c < end; ++c)
      if (nodes_[heap_[c]].order < nodes_[heap_[best]].order) best = c;
    if (nodes_[moving].order <= nodes_[heap_[best]].order) break;
    heap_[at] = heap_[best];
    nodes_[heap_[at]].heap_at = at;
    at = best;
  }
  heap_[at] = moving;
  nodes_[moving].heap_at = at;
}

bool eviction_index::consistent() const {
  std::size_t resident = 0, pinned = 0, in_heap = 0, in_index = 0;
  std::vector<std::uint32_t> children(nodes_.size(), 0);
  for (handle h = 0; h < nodes_.size(); ++h)
    if (nodes_[h].resident && parents_[h] != none) ++children[parents_[h]];
  for (handle h = 0; h < nodes_.size(); ++h) {
    const node& n = nodes_[h];
    if (n.children != children[h]) return false;
    resident += n.resident;
    pinned += n.resident && n.pins != 0;
    if (n.resident || n.children != 0) {
      ++in_index;
      if (known(n.key) != h) return false;
    }
    if (eligible(n) != (n.heap_at != none)) return false;
    if (n.heap_at == none) continue;
    ++in_heap;
    if (n.heap_at >= heap_.size() || heap_[n.heap_at] != h) return false;
    if (n.heap_at > 0 && nodes_[heap_[(n.heap_at - 1) / 4]].order > n.order) return false;
  }
  return resident == resident_ && pinned == pinned_ && in_heap == heap_.size() && in_index == index_.size();
}

}  // namespace mooncaf
