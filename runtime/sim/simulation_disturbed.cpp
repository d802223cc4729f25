#include <algorithm>

#include "runtime/sim/simulation.hpp"

// What goes wrong: instances that are slow, behind a bad link, or restarted.

namespace mooncaf::sim {

namespace {

constexpr ticks look_again = from_sec(0.5);  ///< whether an instance that drains is done

}  // namespace

void simulation::expect_disturbances() {
  for (std::uint32_t i = 0; i < options_.disturbances.size(); ++i) {
    const auto& d = options_.disturbances[i];
    if (d.kind == disturbance_kind::burst) continue;
    events_.push(std::max(now_, from_sec(d.at_s)), event_kind::disturbance, i, 0);
  }
}

/// Stamp 0: it begins; 1: it ends; from 2 on: the restart of the instance with that number, less 2, goes on.
void simulation::disturbed(std::uint32_t number, std::uint32_t stamp) {
  const auto& d = options_.disturbances[number];
  const auto count = static_cast<std::uint32_t>(d.prefill ? prefills_.size() : decodes_.size());
  if (count == 0 || d.first >= count) return;
  const auto last = std::min(d.last, count - 1);
  if (d.kind == disturbance_kind::restart) {
    if (stamp >= 2) return go_on_restarting(number, stamp - 2);
    for (auto i = d.first; i <= (d.one_by_one ? d.first : last); ++i) begin_restart(number, i);
    return;
  }
  const bool ends = stamp == 1;
  const double factor = ends ? 1 / d.factor : d.factor;
  for (auto i = d.first; i <= last; ++i) {
    const auto node = d.prefill ? i : options_.prefill + i;
    (d.kind == disturbance_kind::slow ? conditions_[node].slower : conditions_[node].link) *= factor;
    if (d.kind == disturbance_kind::slow && !d.prefill) change_pace(i);
  }
  if (!ends) events_.push(now_ + from_sec(d.for_s), event_kind::disturbance, number, 1);
}

/// A decode instance goes on at another speed after the step under way.
void simulation::change_pace(std::uint32_t instance) {
  auto& d = decodes_[instance];
  if (d.running() == 0) return;
  if (const auto turn = d.cut(now_)) events_.push(turn->at, event_kind::decode_turn, instance, turn->stamp);
}

worker_id simulation::id_of(const disturbance& d, std::uint32_t instance) const noexcept {
  return d.prefill ? prefill_id(instance) : decode_id(instance);
}

/// It gets nothing new from now on.
void simulation::begin_restart(std::uint32_t number, std::uint32_t instance) {
  const auto& d = options_.disturbances[number];
  auto& c = conditions_[id_of(d, instance).value - 1];
  if (c.restarting) return;  // by another line
  c.restarting = true;
  (void)conductor_.set_state(id_of(d, instance), instance_state::draining);
  go_on_restarting(number, instance);
}

/// Draining, until nobody needs it; then away; then back with an empty memory.
void simulation::go_on_restarting(std::uint32_t number, std::uint32_t instance) {
  const auto& d = options_.disturbances[number];
  const auto worker = id_of(d, instance);
  auto& c = conditions_[worker.value - 1];
  if (!c.away && is_needed(d.prefill, instance)) {
    return events_.push(now_ + look_again, event_kind::disturbance, number, instance + 2);
  }
  if (!c.away) {
    c.away = true;
    if (d.prefill) {
      conductor_.forget_blocks(node_id{worker.value});
      caches_[instance].clear();
    }
    out_.absences.push_back({d.prefill, instance, to_sec(now_), to_sec(now_ + from_sec(d.for_s))});
    return events_.push(now_ + from_sec(d.for_s), event_kind::disturbance, number, instance + 2);
  }
  c.away = c.restarting = false;
  (void)conductor_.set_state(worker, instance_state::live);
  const auto count = static_cast<std::uint32_t>(d.prefill ? prefills_.size() : decodes_.size());
  if (d.one_by_one && instance < std::min(d.last, count - 1)) begin_restart(number, instance + 1);
}

/// A request computes there, waits for it, or moves KV from or to it.
bool simulation::is_needed(bool prefill, std::uint32_t instance) const {
  for (std::uint32_t slot = 0; slot < requests_.capacity(); ++slot) {
    const auto& r = requests_[slot];
    if (!r.live || !r.placed) continue;
    if (!prefill && r.decode == instance) return true;
    if (prefill && r.prefill == instance && (r.first_token == 0 || r.kv_sent > now_)) return true;
  }
  const auto& links = links_[prefill ? instance : options_.prefill + instance];
  return prefill && (links.sends > now_ || links.receives > now_);
}

}  // namespace mooncaf::sim
