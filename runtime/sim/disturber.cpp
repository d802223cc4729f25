#include "runtime/sim/disturber.hpp"

#include <algorithm>

#include "runtime/sim/machine_event.hpp"

namespace mooncaf::sim {

namespace {

constexpr ticks look_again = from_sec(0.5);  ///< whether a machine that drains is done

/// The prefix that was to come from elsewhere is computed.
void unfetch(request_state_record& r) {
  r.source = 0;
  r.fetched_to = r.local_blocks;
}

}  // namespace

void disturber::begin() {
  for (std::uint32_t i = 0; i < w_.options.disturbances.size(); ++i) {
    const auto& d = w_.options.disturbances[i];
    if (d.kind == disturbance_kind::burst) continue;  // bends the times of requests, see `arrivals`
    w_.time.add(std::max(w_.time.now(), from_sec(d.at_s)), event_kind::disturbance, i, 0);
  }
}

/// The last instance that a line is about. @pre there are instances of its role.
std::uint32_t disturber::last_of(const disturbance& d) const noexcept {
  return std::min(d.last, w_.layout.count_of(d.role) - 1);
}

void disturber::happen(std::uint32_t number, std::uint32_t stamp) {
  const auto& d = w_.options.disturbances[number];
  if (d.first >= w_.layout.count_of(d.role)) return;
  switch (d.kind) {
    case disturbance_kind::burst:
      return;
    case disturbance_kind::fail:
      return begin_failures(number);
    case disturbance_kind::restart:
      if (stamp >= 2) return go_on_restarting(number, stamp - 2);
      for (auto i = d.first; i <= (d.one_by_one ? d.first : last_of(d)); ++i) begin_restart(number, i);
      return;
    case disturbance_kind::slow:
    case disturbance_kind::link:
      break;
  }
  const bool ends = stamp == 1;
  change_speed(d, ends ? 1 / d.factor : d.factor);
  if (!ends) w_.time.add(w_.time.now() + from_sec(d.for_s), event_kind::disturbance, number, 1);
}

void disturber::change_speed(const disturbance& d, double factor) {
  for (auto i = d.first; i <= last_of(d); ++i) {
    const auto machine = w_.layout.machine_of(d.role, i);
    if (d.kind == disturbance_kind::link) {
      c_.links.change_speed(machine, factor);
    } else {
      c_.machines.slow_down(machine, factor);
      c_.change_pace(machine);
    }
  }
}

/// The machine gets nothing new from now on. One that is not at work is left alone.
void disturber::begin_restart(std::uint32_t number, std::uint32_t instance) {
  const auto& d = w_.options.disturbances[number];
  for (auto i = instance; i <= last_of(d); ++i) {
    const auto machine = w_.layout.machine_of(d.role, i);
    if (c_.machines.is(machine, machine_state::live)) {
      c_.machines.drain_for(machine, number);
      return go_on_restarting(number, i);
    }
    if (!d.one_by_one) return;
  }
}

/// The machine drains until no request needs it, is away, and comes back with an empty memory, unless it dies
/// before.
void disturber::go_on_restarting(std::uint32_t number, std::uint32_t instance) {
  const auto& d = w_.options.disturbances[number];
  const auto machine = w_.layout.machine_of(d.role, instance);
  const auto now = w_.time.now(), back = now + from_sec(d.for_s);
  if (c_.machines.is_restarted_by(machine, number, machine_state::draining)) {
    if (c_.is_needed(machine))
      return w_.time.add(now + look_again, event_kind::disturbance, number, instance + 2);
    c_.machines.go_away(machine);
    c_.empty_memory(machine);
    w_.out.absences.push_back({d.role, instance, to_sec(now), to_sec(back), false});
    return w_.time.add(back, event_kind::disturbance, number, instance + 2);
  }
  if (c_.machines.is_restarted_by(machine, number, machine_state::away)) c_.machines.come_back(machine);
  if (d.one_by_one && instance < last_of(d)) begin_restart(number, instance + 1);
}

void disturber::begin_failures(std::uint32_t number) {
  const auto& d = w_.options.disturbances[number];
  for (auto i = d.first; i <= last_of(d); ++i) {
    const auto machine = w_.layout.machine_of(d.role, i);
    if (d.mtbf_s > 0) expect_failure(number, machine);
    else die(number, machine);
  }
}

/// Draws of one machine by one line: other machines' events change nothing about them.
random_source& disturber::draws(std::uint32_t number, std::uint32_t machine) {
  const std::uint64_t mixed = (std::uint64_t{number} + 1) << 32 | machine;
  return draws_.try_emplace({number, machine}, random_source{w_.options.seed ^ mixed}).first->second;
}

void disturber::expect_failure(std::uint32_t number, std::uint32_t machine) {
  const auto& d = w_.options.disturbances[number];
  if (d.mtbf_s == 0) return;
  const auto at = w_.time.now() + from_sec(draws(number, machine).exponential(d.mtbf_s));
  if (at >= from_sec(d.at_s + d.for_s)) return;
  w_.time.add(at, event_kind::machine, machine, stamp_of(machine_event::dies, number));
}

void disturber::die(std::uint32_t number, std::uint32_t machine) {
  const auto& d = w_.options.disturbances[number];
  if (!c_.machines.computes(machine)) return expect_failure(number, machine);  // nothing is there to die
  c_.machines.die(machine);
  for (const auto& answer : c_.crash(machine)) requests_.torn(answer);
  cut_off(machine);
  const double down = d.mtbf_s > 0 ? draws(number, machine).exponential(d.mttr_s) : d.for_s;
  const auto now = w_.time.now(), back = now + std::max<ticks>(from_sec(down), 1);
  w_.out.absences.push_back(
      {w_.layout.role_of(machine), w_.layout.instance_of(machine), to_sec(now), to_sec(back), true});
  w_.time.add(back, event_kind::machine, machine, stamp_of(machine_event::returns, number));
  if (d.unseen_s == 0) return noticed(machine);
  const auto seen = now + from_sec(d.unseen_s);
  if (seen < back) w_.time.add(seen, event_kind::machine, machine, stamp_of(machine_event::noticed, number));
}

/// KV that was on its way from a machine that died does not arrive.
void disturber::cut_off(std::uint32_t machine) {
  if (w_.layout.role_of(machine) == worker_role::decode) return;
  for (std::uint32_t slot = 0; slot < w_.requests.capacity(); ++slot) {
    auto& r = w_.requests[slot];
    if (!r.live || !r.placed) continue;
    if (r.source == machine + 1) unfetch(r);
    if (!w_.layout.coupled() && r.prefill == machine && r.first_token > 0 && r.kv_sent > w_.time.now())
      r.stranded = true;
  }
}

bool disturber::is_lost_with(const request_state_record& r, std::uint32_t machine) const noexcept {
  if (!r.live || !r.placed) return false;
  if (w_.layout.coupled()) return r.prefill == machine;
  return w_.layout.decode_machine(r.decode) == machine ||
         (r.prefill == machine && (r.first_token == 0 || r.stranded));
}

void disturber::noticed(std::uint32_t machine) {
  if (!c_.machines.notice(machine)) return;
  for (std::uint32_t slot = 0; slot < w_.requests.capacity(); ++slot) {
    if (is_lost_with(w_.requests[slot], machine)) lose(slot);
  }
}

/// Its prefill instance, if still there, first gives back the request's work and pins.
void disturber::lose(std::uint32_t slot) {
  auto& r = w_.requests[slot];
  c_.turns.ends(r);
  if (c_.machines.computes(r.prefill)) {
    if (!w_.layout.coupled() && r.first_token == 0) c_.prefills.cancel(r);
    c_.memories.of(r.prefill).unpin(r.pins);
  }
  r.pins.clear();
  requests_.lose(slot);
}

void disturber::returns(std::uint32_t number, std::uint32_t machine) {
  noticed(machine);
  c_.machines.revive(machine);
  expect_failure(number, machine);
}

}  // namespace mooncaf::sim
