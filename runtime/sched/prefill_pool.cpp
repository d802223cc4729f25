#include "runtime/sched/prefill_pool.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

/// Up to this many nodes are looked at one by one instead of through the tree.
constexpr std::size_t few_nodes = 32;

/// No queue is longer: a year.
constexpr duration longest_queue = std::chrono::hours(24 * 365);

std::int64_t ticks(time_point t) noexcept { return t.time_since_epoch().count(); }

}  // namespace

instance_slot prefill_pool::add(const instance_desc& desc, node_index node) {
  const auto free = std::ranges::find(all_, false, &member::used);
  const auto slot = static_cast<instance_slot>(free - all_.begin());
  if (free == all_.end()) all_.emplace_back();
  auto& m = all_[slot];
  m = member{};
  m.used = true;
  m.desc = desc;
  m.node = node;
  m.speed = classes_.join(prefill_model{desc.samples}, slot);
  index_nodes(m.speed);
  publish(slot);
  return slot;
}

void prefill_pool::remove(instance_slot slot) {
  set_state(slot, instance_state::lost);
  const auto speed = all_[slot].speed;
  classes_.leave(speed, slot);
  all_[slot] = member{};
  index_nodes(speed);
}

void prefill_pool::set_state(instance_slot slot, instance_state state) {
  all_[slot].desc.state = state;
  index_nodes(all_[slot].speed);
  publish(slot);
}

void prefill_pool::move_node(instance_slot slot, node_index node) {
  const auto state = all_[slot].desc.state;
  set_state(slot, instance_state::joining);
  all_[slot].node = node;
  set_state(slot, state);
}

/// Enters a slot into the lists of live instances, or takes it out.
void prefill_pool::publish(instance_slot slot) {
  const auto& m = all_[slot];
  const bool live = m.desc.state == instance_state::live;
  if (by_node_.size() <= m.node) by_node_.resize(std::size_t{m.node} + 1);
  auto& here = by_node_[m.node];
  std::erase(live_, slot);
  std::erase(here, slot);
  if (!live) return;
  live_.push_back(slot);
  here.insert(std::ranges::lower_bound(here, slot), slot);
}

/// A class's tree and nodes after its members or their states changed.
void prefill_pool::index_nodes(std::size_t c) {
  auto& mine = classes_[c];
  mine.nodes.clear();
  for (std::size_t i = 0; i < mine.members.size(); ++i) {
    const auto& m = all_[mine.members[i]];
    const bool live = m.desc.state == instance_state::live;
    mine.tree.set(i, live ? m.free_at : min_tree::absent);
    if (live) mine.nodes.insert(m.node);
  }
}

void prefill_pool::set_free_at(instance_slot slot, std::int64_t when) {
  auto& m = all_[slot];
  m.free_at = when;
  if (m.desc.state != instance_state::live) return;
  auto& mine = classes_[m.speed];
  mine.tree.set(mine.position(slot), when);
}

void prefill_pool::charge(instance_slot slot, duration cost, time_point now, bool urgent) {
  auto& m = all_[slot];
  if (urgent) m.urgent += cost;
  ++m.pending;
  m.owed += cost;
  set_free_at(slot,
              std::min(std::max(m.free_at, ticks(now)) + cost.count(), ticks(now) + longest_queue.count()));
}

void prefill_pool::completed(instance_slot slot, duration cost, time_point now, bool urgent) {
  auto& m = all_[slot];
  if (urgent) m.urgent -= cost;
  --m.pending;
  m.owed -= cost;
  set_free_at(slot, ticks(now) + m.owed.count());
}

void prefill_pool::withdrawn(instance_slot slot, duration cost, time_point now, bool urgent) {
  auto& m = all_[slot];
  if (urgent) m.urgent -= cost;
  --m.pending;
  m.owed -= cost;
  set_free_at(slot, m.pending == 0 ? ticks(now) : std::max(m.free_at - cost.count(), ticks(now)));
}

void prefill_pool::heard_of(instance_slot slot, time_point now) {
  const auto& m = all_[slot];
  if (m.pending == 0) return;
  const auto least = ticks(now) + m.owed.count() / m.pending * (m.pending - 1);
  if (m.free_at < least) set_free_at(slot, least);
}

void prefill_pool::observe(instance_slot slot, std::uint64_t new_tokens, std::uint64_t cached_tokens,
                           duration measured) {
  classes_[all_[slot].speed].model.observe(new_tokens, cached_tokens, measured);
}

duration prefill_pool::queue(instance_slot slot, time_point now) const noexcept {
  return duration{std::max<std::int64_t>(all_[slot].free_at - ticks(now), 0)} + all_[slot].standing;
}

void prefill_pool::set_standing(instance_slot slot, duration work) noexcept {
  auto& mine = all_[slot].standing;
  with_standing_ += (work > duration{}) - (mine > duration{});
  mine = work;
}

duration prefill_pool::urgent_queue(instance_slot slot, time_point now) const noexcept {
  const auto& m = all_[slot];
  if (m.pending == 0) return {};
  return std::min(m.urgent + m.owed / m.pending, queue(slot, now));
}

std::span<const instance_slot> prefill_pool::live_on(node_index node) const noexcept {
  if (by_node_.size() <= node) return {};
  return by_node_[node];
}

template <class Wanted>
instance_slot prefill_pool::best_where(std::size_t c, time_point now, duration most, Wanted&& wanted) const {
  const auto& mine = classes_[c];
  if (with_standing_ > 0) {
    auto best = no_slot;
    for (const auto slot : mine.members) {
      const auto& m = all_[slot];
      if (m.desc.state != instance_state::live || !wanted(m.node)) continue;
      const auto length = queue(slot, now);
      if (length > most || (best != no_slot && length == most)) continue;
      best = slot;
      most = length;
    }
    return best;
  }
  const auto limit = ticks(now) + most.count() + 1;
  const auto at = mine.tree.best(
      ticks(now), [&](std::size_t i) { return wanted(all_[mine.members[i]].node); }, limit);
  return at == min_tree::npos ? no_slot : mine.members[at];
}

template <class Visit>
instance_slot prefill_pool::best_of(std::size_t c, time_point now, duration most,
                                    Visit&& for_each_node) const {
  auto best = no_slot;
  auto least = most;
  for_each_node([&](node_index n) {
    for (const auto slot : live_on(n)) {
      if (all_[slot].speed != c) continue;
      const auto mine = queue(slot, now);
      if (mine > least || (mine == least && slot > best)) continue;  // `no_slot` is above all slots
      best = slot;
      least = mine;
    }
  });
  return best;
}

instance_slot prefill_pool::shortest(std::size_t c, time_point now) const {
  return best_where(c, now, longest_queue, [](node_index) { return true; });
}

instance_slot prefill_pool::shortest_on(std::size_t c, const node_set& nodes, time_point now,
                                        duration most) const {
  const auto count = node_set::count_common(classes_[c].nodes, nodes);
  if (count == 0) return no_slot;
  if (count > few_nodes) return best_where(c, now, most, [&](node_index n) { return nodes.test(n); });
  return best_of(c, now, most,
                 [&](auto&& visit) { node_set::for_each_common(classes_[c].nodes, nodes, visit); });
}

instance_slot prefill_pool::shortest_off(std::size_t c, const node_set& nodes, time_point now,
                                         duration most) const {
  const auto count = node_set::count_without(classes_[c].nodes, nodes);
  if (count == 0) return no_slot;
  if (count > few_nodes) return best_where(c, now, most, [&](node_index n) { return !nodes.test(n); });
  return best_of(c, now, most,
                 [&](auto&& visit) { node_set::for_each_without(classes_[c].nodes, nodes, visit); });
}

}  // namespace mooncaf
