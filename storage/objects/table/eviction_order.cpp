#include "storage/objects/table/eviction_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace mooncaf {

namespace {
/// Gone objects to remember for each object that is there.
constexpr std::size_t remembered = 4;
constexpr std::size_t least_remembered = 1024;

std::uint32_t tag_of(std::uint64_t name) noexcept { return static_cast<std::uint32_t>(name >> 32) | 1u; }
}  // namespace

eviction_order::eviction_order(eviction_policy rule) : rule_(rule) {}

// ---- objects ----

// A name that was given up lately comes back with the uses that were remembered of it.
eviction_order::handle eviction_order::add(std::uint64_t name, double worth, std::uint32_t depth,
                                           std::uint32_t owner) {
  if (heaps_.size() <= owner) heaps_.resize(owner + 1);
  if (unused_.empty()) {
    unused_.push_back(static_cast<handle>(nodes_.size()));
    nodes_.emplace_back();
  }
  const auto h = unused_.back();
  unused_.pop_back();
  auto& n = nodes_[h];
  n = {};
  n.name = name;
  n.depth = depth;
  n.owner = owner;
  n.there = true;
  n.uses = 1;
  n.used = n.counted = ++clock_;
  if (worth > 0) {
    worth = std::clamp(worth, 1e-30, 1e30);
    worth_sum_ += worth;
    ++worth_count_;
  } else if (worth_count_ > 0) {
    worth = worth_sum_ / static_cast<double>(worth_count_);
  }
  n.worth = worth > 0 ? static_cast<float>(worth) : 1;
  n.worth_class = worth_class(static_cast<double>(n.worth));
  ++there_;
  if (!gone_.empty()) remind_of(n);
  return h;
}

void eviction_order::remind_of(node& n) {
  auto& m = slot(n.name);
  if (m.uses == 0 || m.tag != tag_of(n.name)) return;
  ++regretted_;
  odds_.came_back(reuse_odds::kind_of(m.uses), clock_ - m.counted);
  if (rule_ == eviction_policy::cost_aware) n.uses = m.uses + 1;
  m = {};
}

void eviction_order::link(handle child, handle parent) {
  auto& n = nodes_[child];
  if (n.parent != none || nodes_[parent].depth >= n.depth) return;
  n.parent = parent;
  ++nodes_[parent].children;
  refresh(parent);
}

void eviction_order::unlink(handle h) {
  const auto parent = std::exchange(nodes_[h].parent, none);
  if (parent == none) return;
  --nodes_[parent].children;
  if (nodes_[parent].there) refresh(parent);
  else if (nodes_[parent].children == 0) unused_.push_back(parent);
}

void eviction_order::use(handle h, bool counts) {
  auto& n = nodes_[h];
  const bool waits = n.place != none;
  if (waits) take_out(heap_of(n), n.place);
  n.used = ++clock_;
  if (counts) {
    if (rule_ == eviction_policy::cost_aware)
      odds_.came_back(reuse_odds::kind_of(n.uses), clock_ - n.counted);
    n.counted = clock_;
    ++n.uses;
  }
  refresh(h);
}

void eviction_order::stand(handle h, standing s) {
  auto& n = nodes_[h];
  if (n.stands == s) return;
  if (n.place != none) take_out(heap_of(n), n.place);
  n.stands = s;
  refresh(h);
}

void eviction_order::follow(handle h, bool followed) {
  nodes_[h].followed = followed;
  refresh(h);
}

void eviction_order::erase(handle h, bool evicted) {
  auto& n = nodes_[h];
  if (n.place != none) take_out(heap_of(n), n.place);
  if (evicted) {
    make_room_to_remember();
    auto& m = slot(n.name);
    if (m.uses != 0) odds_.forgotten(reuse_odds::kind_of(m.uses), clock_ - m.counted);
    m = {tag_of(n.name), n.uses, n.counted};
    odds_.learn_in_time();
  }
  n.stands = standing::held;
  n.there = false;
  --there_;
  unlink(h);
  if (nodes_[h].children == 0) unused_.push_back(h);  // else the last child frees it
}

void eviction_order::make_room_to_remember() {
  const auto wanted = std::bit_ceil(std::max<std::size_t>(least_remembered, remembered * there_));
  if (gone_.size() >= wanted) return;
  const auto old = std::exchange(gone_, std::vector<memory>(wanted));
  // A slot no longer has the low bits of its name, so each memory is kept in all places where its name may
  // lead.
  for (std::size_t i = 0; !old.empty() && i < wanted; ++i) gone_[i] = old[i & (old.size() - 1)];
}

// ---- order ----

std::uint8_t eviction_order::worth_class(double worth) const noexcept {
  if (rule_ != eviction_policy::cost_aware || worth_count_ == 0) return worth_classes / 2;
  const auto steps = std::lround(std::log2(worth * static_cast<double>(worth_count_) / worth_sum_));
  return static_cast<std::uint8_t>(
      std::clamp(steps + static_cast<long>(worth_classes / 2), 0L, static_cast<long>(worth_classes - 1)));
}

std::size_t eviction_order::order_of(const node& n) const noexcept {
  if (rule_ != eviction_policy::cost_aware) return 0;
  return reuse_odds::kind_of(n.uses) * worth_classes + n.worth_class;
}

eviction_order::rank eviction_order::rank_of(const node& n) const noexcept {
  switch (rule_) {
    case eviction_policy::lfu:
      return {n.uses, n.used};
    case eviction_policy::length_aware:
      return {std::uint64_t{n.uses} << 32 | static_cast<std::uint32_t>(~n.depth), n.used};
    case eviction_policy::lru:
    case eviction_policy::cost_aware:
      break;
  }
  return {n.used, 0};
}

void eviction_order::refresh(handle h) {
  auto& n = nodes_[h];
  const bool wanted = n.there && n.stands != standing::held && n.children == 0 && !n.followed;
  if (wanted && n.place == none) push(heap_of(n), h);
  if (!wanted && n.place != none) take_out(heap_of(n), n.place);
}

void eviction_order::put(heap& in, std::size_t at, const waiting& w) {
  in[at] = w;
  nodes_[w.who].place = static_cast<std::uint32_t>(at);
}

void eviction_order::settle(heap& in, std::size_t at, const waiting& w) {
  while (at > 0 && w.when < in[(at - 1) / 2].when) {
    put(in, at, in[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (;;) {
    auto below = 2 * at + 1;
    if (below + 1 < in.size() && in[below + 1].when < in[below].when) ++below;
    if (below >= in.size() || !(in[below].when < w.when)) break;
    put(in, at, in[below]);
    at = below;
  }
  put(in, at, w);
}

void eviction_order::push(heap& in, handle h) {
  in.emplace_back();
  const auto last = in.size() - 1;
  in[last] = {rank_of(nodes_[h]), h};
  settle(in, last, waiting{in[last]});
}

void eviction_order::take_out(heap& in, std::size_t at) {
  nodes_[in[at].who].place = none;
  const auto last = in.back();
  in.pop_back();
  if (at < in.size()) settle(in, at, last);
}

void eviction_order::consider(const std::array<heap, orders>& among, candidate& best) const {
  for (const auto& h : among) {
    if (h.empty()) continue;
    const auto& n = nodes_[h.front().who];
    const auto loss =
        rule_ == eviction_policy::cost_aware
            ? odds_.ahead(reuse_odds::kind_of(n.uses), clock_ - n.counted) * static_cast<double>(n.worth)
            : 0;
    if (best.who != none && (loss > best.loss || (loss == best.loss && best.when < h.front().when))) continue;
    best = {h.front().who, loss, h.front().when};
  }
}

eviction_order::handle eviction_order::victim() const {
  for (const std::size_t tier : {0, 1}) {
    candidate best;
    for (const auto& whose : heaps_) consider(whose[tier], best);
    if (best.who != none) return best.who;
  }
  return none;
}

eviction_order::handle eviction_order::victim_of(std::uint32_t owner) const {
  if (owner >= heaps_.size()) return none;
  for (const auto& tier : heaps_[owner]) {
    candidate best;
    consider(tier, best);
    if (best.who != none) return best.who;
  }
  return none;
}

bool eviction_order::consistent() const {
  std::vector<std::uint32_t> children(nodes_.size());
  std::size_t there = 0, ends = 0, in_heaps = 0;
  for (const auto& n : nodes_)
    if (n.there && n.parent != none) ++children[n.parent];
  for (handle h = 0; h < nodes_.size(); ++h) {
    const auto& n = nodes_[h];
    there += n.there;
    const bool wanted = n.there && n.stands != standing::held && n.children == 0 && !n.followed;
    ends += wanted;
    if (n.children != children[h] || wanted != (n.place != none)) return false;
    if (!wanted) continue;
    const auto& in = heaps_[n.owner][n.stands == standing::soft][order_of(n)];
    if (n.place >= in.size() || in[n.place].who != h) return false;
    if (n.place > 0 && in[n.place].when < in[(n.place - 1) / 2].when) return false;
  }
  for (const auto& whose : heaps_)
    for (const auto& tier : whose)
      for (const auto& h : tier) in_heaps += h.size();
  return there == there_ && ends == in_heaps;
}

}  // namespace mooncaf
