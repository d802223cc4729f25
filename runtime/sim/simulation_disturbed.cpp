#include <algorithm>

#include "runtime/sim/simulation.hpp"

// What goes wrong: machines that are slow, behind a bad link, or restarted. Those that die:
// simulation_failures.

namespace mooncaf::sim {

namespace {

constexpr ticks look_again = from_sec(0.5);  ///< whether a machine that drains is done

}  // namespace

std::uint32_t simulation::count_of(machine_role role) const noexcept {
  return static_cast<std::uint32_t>(role == machine_role::prefill  ? prefills_.size()
                                    : role == machine_role::decode ? decodes_.size()
                                                                   : coupled_.size());
}

std::uint32_t simulation::machine_of(machine_role role, std::uint32_t instance) const noexcept {
  return role == machine_role::decode ? decode_machine(instance) : instance;
}

machine_role simulation::role_of(std::uint32_t machine) const noexcept {
  return is_coupled()                 ? machine_role::node
         : machine < options_.prefill ? machine_role::prefill
                                      : machine_role::decode;
}

std::uint32_t simulation::instance_of(std::uint32_t machine) const noexcept {
  return role_of(machine) == machine_role::decode ? machine - options_.prefill : machine;
}

void simulation::set_state(std::uint32_t machine, instance_state state) {
  // Neither can fail: a machine whose state is changed has joined.
  (void)conductor_.set_state(worker_id{machine + 1}, state);
  if (is_coupled()) (void)conductor_.set_state(decode_id(machine), state);
}

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
  const auto count = count_of(d.role);
  if (count == 0 || d.first >= count) return;
  const auto last = std::min(d.last, count - 1);
  if (d.kind == disturbance_kind::fail) return begin_failures(number);
  if (d.kind == disturbance_kind::restart) {
    if (stamp >= 2) return go_on_restarting(number, stamp - 2);
    for (auto i = d.first; i <= (d.one_by_one ? d.first : last); ++i) begin_restart(number, i);
    return;
  }
  const bool ends = stamp == 1;
  const double factor = ends ? 1 / d.factor : d.factor;
  for (auto i = d.first; i <= last; ++i) {
    auto& c = conditions_[machine_of(d.role, i)];
    (d.kind == disturbance_kind::slow ? c.slower : c.link) *= factor;
    if (d.kind == disturbance_kind::slow) change_pace(machine_of(d.role, i));
  }
  if (!ends) events_.push(now_ + from_sec(d.for_s), event_kind::disturbance, number, 1);
}

/// What decodes goes on at another speed after the step under way.
void simulation::change_pace(std::uint32_t machine) {
  const auto i = instance_of(machine);
  switch (role_of(machine)) {
    case machine_role::prefill:
      return;
    case machine_role::decode:
      if (decodes_[i].running() == 0) return;
      if (const auto turn = decodes_[i].cut(now_))
        events_.push(turn->at, event_kind::decode_turn, i, turn->stamp);
      return;
    case machine_role::node:
      if (coupled_[i].running() == 0) return;
      if (const auto turn = coupled_[i].wake(now_))
        events_.push(turn->at, event_kind::coupled_turn, i, turn->stamp);
      return;
  }
}

/// It gets nothing new from now on. One that is not at work is left alone.
void simulation::begin_restart(std::uint32_t number, std::uint32_t instance) {
  const auto& d = options_.disturbances[number];
  const auto last = std::min(d.last, count_of(d.role) - 1);
  for (auto i = instance; i <= last; ++i) {
    const auto machine = machine_of(d.role, i);
    auto& c = conditions_[machine];
    if (c.state == machine_state::live) {
      c.state = machine_state::draining;
      c.line = number;
      set_state(machine, instance_state::draining);
      return go_on_restarting(number, i);
    }
    if (!d.one_by_one) return;
  }
}

/// Draining, until nobody needs it; then away; then back with an empty memory. Unless it dies before.
void simulation::go_on_restarting(std::uint32_t number, std::uint32_t instance) {
  const auto& d = options_.disturbances[number];
  const auto machine = machine_of(d.role, instance);
  auto& c = conditions_[machine];
  if (c.line == number && c.state == machine_state::draining) {
    if (is_needed(machine))
      return events_.push(now_ + look_again, event_kind::disturbance, number, instance + 2);
    c.state = machine_state::away;
    if (d.role != machine_role::decode) conductor_.forget_blocks(node_id{machine + 1});
    empty_memory(machine);
    out_.absences.push_back({d.role, instance, to_sec(now_), to_sec(now_ + from_sec(d.for_s)), false});
    return events_.push(now_ + from_sec(d.for_s), event_kind::disturbance, number, instance + 2);
  }
  if (c.line == number && c.state == machine_state::away) {
    c.state = machine_state::live;
    c.line = no_line;
    set_state(machine, instance_state::live);
  }
  if (d.one_by_one && instance < std::min(d.last, count_of(d.role) - 1)) begin_restart(number, instance + 1);
}

/// What a machine that nobody needs holds of KV is gone.
void simulation::empty_memory(std::uint32_t machine) {
  const auto i = instance_of(machine);
  const auto role = role_of(machine);
  if (role == machine_role::prefill) prefills_[i].forget_kv();
  else if (role == machine_role::decode) decodes_[i].forget_kv();
  else coupled_[i].forget_kv();
  if (role != machine_role::decode) caches_[i].clear();
}

/// A request computes there, waits for it, or moves KV from or to it.
bool simulation::is_needed(std::uint32_t machine) const {
  const auto role = role_of(machine);
  const auto instance = instance_of(machine);
  for (std::uint32_t slot = 0; slot < requests_.capacity(); ++slot) {
    const auto& r = requests_[slot];
    if (!r.live || !r.placed) continue;
    if (role != machine_role::prefill && r.decode == instance) return true;
    if (role == machine_role::prefill && r.prefill == instance && (r.first_token == 0 || r.kv_sent > now_))
      return true;
  }
  const auto& links = links_[machine];
  return role != machine_role::decode && (links.sends > now_ || links.receives > now_);
}

}  // namespace mooncaf::sim
