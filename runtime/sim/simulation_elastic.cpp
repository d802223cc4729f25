#include <algorithm>

#include "runtime/sim/simulation.hpp"

// Machines that come and go with the load, and those that change their role.
//
//   off ──hire──► starting ──► live ──dismiss──► draining ──► off        paid from `starting` until `off`
//                                                    └ switches: starting in the other role

namespace mooncaf::sim {

namespace {

constexpr ticks look_again = from_sec(0.5);  ///< whether a machine that drains is done

autoscaler scaler_of(const elastic_options& o, const instance_range& range) {
  return autoscaler{
      {std::max(range.least, 1u), std::max(range.most, 1u), o.target, 0.1, from_seconds(o.down_after_s)}};
}

}  // namespace

simulation::elastic_pool::elastic_pool(const elastic_options& o)
    : prefill(scaler_of(o, o.prefill)), decode(scaler_of(o, o.decode)), roles({}) {}

/// Room for as many machines of either role as there may ever be.
void simulation::make_room() {
  const auto& e = options_.elastic;
  started_prefill_ = options_.prefill;
  started_decode_ = options_.decode;
  if (e.switch_roles) options_.prefill = options_.decode = started_prefill_ + started_decode_ - 1;
  options_.prefill = std::max(options_.prefill, e.prefill.most);
  options_.decode = std::max(options_.decode, e.decode.most);
}

bool simulation::is_there_at_first(std::uint32_t machine) const noexcept {
  return is_coupled() || (machine < options_.prefill ? machine < started_prefill_
                                                     : machine - options_.prefill < started_decode_);
}

void simulation::begin_paying() {
  for (auto& c : conditions_) c.paid_since = c.state == machine_state::off ? -1 : now_;
  out_.began_s = to_sec(began_);
  out_.most_prefill = started_prefill_;
  out_.most_decode = is_coupled() ? 0 : started_decode_;
  elastic_.looked = now_;
  if (options_.elastic.any()) events_.push(now_ + from_sec(options_.elastic.every_s), event_kind::elastic, 0);
}

std::uint32_t simulation::machines_in(machine_role role, machine_state state) const {
  const auto begin = machine_of(role, 0), count = count_of(role);
  return static_cast<std::uint32_t>(std::count_if(conditions_.begin() + begin,
                                                  conditions_.begin() + begin + count,
                                                  [&](const condition& c) { return c.state == state; }));
}

/// Time computing since the last look, and what waits, over the TTFT SLO.
pool_load simulation::prefill_load() {
  pool_load out;
  const double window = std::max(to_sec(now_ - elastic_.looked), 1e-9);
  for (std::uint32_t i = 0; i < prefills_.size(); ++i) {
    const auto busy = prefills_[i].busy();
    const auto worked = to_sec(busy - std::exchange(elastic_.busy[i], busy));
    if (conditions_[i].state != machine_state::live) continue;
    ++out.running;
    out.load += std::clamp(worked / window, 0.0, 1.0) + conductor_.load_of(prefill_id(i), clock());
  }
  out.load /= std::max(out.running, 1u);
  return out;
}

/// What runs out first: places in the batch, memory, or time under the TBT SLO.
pool_load simulation::decode_load() const {
  pool_load out;
  const auto& machine = options_.decode_profile();
  const double empty = decode_costs_.decode_step(0, 0);
  for (std::uint32_t i = 0; i < decodes_.size(); ++i) {
    if (conditions_[decode_machine(i)].state != machine_state::live) continue;
    const auto& d = decodes_[i];
    const auto running = static_cast<double>(d.running());
    const auto all = running + static_cast<double>(d.waiting());
    const double memory = static_cast<double>(d.context_tokens()) * all / std::max(running, 1.0) /
                          static_cast<double>(std::max<std::uint64_t>(machine.device_kv_tokens, 1));
    const double step = decode_costs_.decode_step(d.running(), d.context_tokens()) - empty;
    const double room = options_.tbt_slo_s - empty;
    ++out.running;
    out.load += std::max({all / machine.max_batch, memory, room > 0 && running > 0 ? step / room : 0.0});
  }
  out.load /= std::max(out.running, 1u);
  return out;
}

void simulation::decide_on_machines() {
  const auto& e = options_.elastic;
  auto prefill = prefill_load(), decode = decode_load();
  // As monitoring tells it: a mean over about a minute, or every prompt that comes would move machines.
  const double fresh = elastic_.looks++ == 0 ? 1 : e.every_s / (e.every_s + 60);
  const auto calm = [&](pool_load& pool,
                        double& mean) {  // of what all of them have to do: more share it soon
    mean += fresh * (pool.load * pool.running - mean);
    if (pool.running > 0) pool.load = mean / pool.running;
  };
  calm(prefill, elastic_.prefill_work);
  calm(decode, elastic_.decode_work);
  elastic_.looked = now_;
  if (e.switch_roles) switch_roles(prefill, decode);
  if (e.prefill.most > 0) scale(machine_role::prefill, elastic_.prefill, prefill);
  if (e.decode.most > 0) scale(machine_role::decode, elastic_.decode, decode);
  events_.push(now_ + from_sec(e.every_s), event_kind::elastic, 0);
}

void simulation::scale(machine_role role, autoscaler& scaler, const pool_load& load) {
  const auto coming = machines_in(role, machine_state::starting);
  const auto there = load.running + coming;
  auto wanted = scaler.wanted(load.load, load.running, coming, clock());
  for (; wanted > there && stay(role); --wanted) {
  }
  for (; wanted > there && hire(role, options_.elastic.start_s); --wanted) {
  }
  for (; wanted < there && dismiss(role, machine_leaves::for_good); ++wanted) {
  }
}

void simulation::switch_roles(const pool_load& prefill, const pool_load& decode) {
  for (const auto role : {machine_role::prefill, machine_role::decode}) {
    for (const auto state : {machine_state::starting, machine_state::draining}) {
      if (machines_in(role, state) > 0) return;  // one at a time
    }
  }
  const auto giver = elastic_.roles.decide(prefill, decode, clock());
  if (!giver) return;
  dismiss(*giver == instance_role::prefill ? machine_role::prefill : machine_role::decode,
          machine_leaves::for_other_role);
}

/// One that was about to go is kept. @returns whether there was one.
bool simulation::stay(machine_role role) {
  for (std::uint32_t i = 0; i < count_of(role); ++i) {
    auto& c = conditions_[machine_of(role, i)];
    if (c.state != machine_state::draining || c.leaves != machine_leaves::for_good) continue;
    c.state = machine_state::live;
    c.leaves = machine_leaves::not_at_all;
    set_state(machine_of(role, i), instance_state::live);
    changed(machine_of(role, i), change_kind::serves);
    return true;
  }
  return false;
}

/// @returns whether there was one to hire.
bool simulation::hire(machine_role role, double seconds) {
  for (std::uint32_t i = 0; i < count_of(role); ++i) {
    const auto machine = machine_of(role, i);
    auto& c = conditions_[machine];
    if (c.state != machine_state::off) continue;
    c.state = machine_state::starting;
    c.paid_since = now_;
    changed(machine, change_kind::starts);
    events_.push(now_ + from_sec(seconds), event_kind::machine, machine,
                 static_cast<std::uint32_t>(machine_event::serves));
    return true;
  }
  return false;
}

void simulation::serves(std::uint32_t machine) {
  conditions_[machine].state = machine_state::live;
  join(machine);
  changed(machine, change_kind::serves);
}

/// The latest that came goes first: its cache is the youngest. @returns whether there was one.
bool simulation::dismiss(machine_role role, machine_leaves why) {
  if (machines_in(role, machine_state::live) < 2) return false;
  for (auto i = count_of(role); i-- > 0;) {
    const auto machine = machine_of(role, i);
    auto& c = conditions_[machine];
    if (c.state != machine_state::live) continue;
    c.state = machine_state::draining;
    c.leaves = why;
    set_state(machine, instance_state::draining);
    changed(machine, change_kind::drains);
    look_at_leaving(machine);
    return true;
  }
  return false;
}

void simulation::look_at_leaving(std::uint32_t machine) {
  auto& c = conditions_[machine];
  if (c.state != machine_state::draining || c.leaves == machine_leaves::not_at_all)
    return;  // it died, or stays
  if (is_needed(machine)) {
    return events_.push(now_ + look_again, event_kind::machine, machine,
                        static_cast<std::uint32_t>(machine_event::drains));
  }
  const bool switches = std::exchange(c.leaves, machine_leaves::not_at_all) == machine_leaves::for_other_role;
  c.state = machine_state::off;
  (void)conductor_.remove_node(node_id{machine + 1});  // nobody is there
  const auto role = role_of(machine);
  if (role == machine_role::prefill) caches_[instance_of(machine)].clear();
  changed(machine, change_kind::stops);
  pay(c, now_);
  if (!switches) return;
  hire(role == machine_role::prefill ? machine_role::decode : machine_role::prefill,
       options_.elastic.switch_s);
}

void simulation::changed(std::uint32_t machine, change_kind what) {
  out_.changes.push_back({to_sec(now_), role_of(machine), instance_of(machine), what});
  for (const auto role : {machine_role::prefill, machine_role::decode}) {
    auto& most = role == machine_role::prefill ? out_.most_prefill : out_.most_decode;
    most = std::max(most, count_of(role) - machines_in(role, machine_state::off));
  }
}

void simulation::pay(condition& c, ticks until) {
  if (c.paid_since >= 0) c.paid += until - c.paid_since;
  c.paid_since = -1;
}

/// Machines were paid for until the end, those that were dead or away as well.
void simulation::sum_up_machines() {
  const auto end = began_ + from_sec(out_.span_s);
  for (std::uint32_t m = 0; m < conditions_.size(); ++m) {
    auto& c = conditions_[m];
    if (is_coupled() && m >= options_.prefill) break;
    pay(c, std::max(end, c.paid_since));
    const auto role = role_of(m);
    (role == machine_role::decode ? out_.decode_machine_s : out_.prefill_machine_s) +=
        to_sec(c.paid) * (role == machine_role::prefill ? options_.pipeline : 1);
  }
}

}  // namespace mooncaf::sim
