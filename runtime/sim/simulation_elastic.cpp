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
    : prefill(scaler_of(o, o.nodes.most > 0 ? o.nodes : o.prefill)),
      decode(scaler_of(o, o.decode)),
      roles({}) {}

/// Room for as many machines of either role as there may ever be.
void simulation::make_room() {
  const auto& e = options_.elastic;
  started_prefill_ = options_.prefill;
  started_decode_ = options_.decode;
  if (is_coupled()) {
    options_.prefill = options_.decode = std::max(options_.prefill, e.nodes.most);
    return;
  }
  if (e.switch_roles && !e.scales())
    options_.prefill = options_.decode = started_prefill_ + started_decode_ - 1;
  options_.prefill = std::max(options_.prefill, e.prefill.most);
  options_.decode = std::max(options_.decode, e.decode.most);
}

bool simulation::is_there_at_first(std::uint32_t machine) const noexcept {
  return machine < options_.prefill ? machine < started_prefill_
                                    : machine - options_.prefill < started_decode_;
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
double simulation::decode_occupancy(std::size_t running, std::size_t waiting, std::uint64_t context) const {
  const auto& machine = options_.decode_profile();
  const double empty = decode_costs_.decode_step(0, 0), room = options_.tbt_slo_s - empty;
  const auto n = static_cast<double>(running), all = n + static_cast<double>(waiting);
  const double memory = static_cast<double>(context) * all / std::max(n, 1.0) /
                        static_cast<double>(std::max<std::uint64_t>(machine.device_kv_tokens, 1));
  const double step = decode_costs_.decode_step(running, context) - empty;
  return std::max({all / machine.max_batch, memory, room > 0 && running > 0 ? step / room : 0.0});
}

/// Of coupled nodes the fuller of both: time that prompts take, with what waits, over the TTFT SLO; decoding.
pool_load simulation::coupled_load() {
  pool_load out;
  const double window = std::max(to_sec(now_ - elastic_.looked), 1e-9);
  for (std::uint32_t i = 0; i < coupled_.size(); ++i) {
    const auto& c = coupled_[i];
    const auto worked = to_sec(c.prompts_busy() - std::exchange(elastic_.busy[i], c.prompts_busy()));
    if (conditions_[i].state != machine_state::live) continue;
    ++out.running;
    const double prompts = std::clamp(worked / window, 0.0, 1.0) + conductor_.load_of(prefill_id(i), clock());
    out.load += std::max(prompts, decode_occupancy(c.running(), 0, c.context_tokens()));
  }
  out.load /= std::max(out.running, 1u);
  return out;
}

pool_load simulation::decode_load() const {
  pool_load out;
  for (std::uint32_t i = 0; i < decodes_.size(); ++i) {
    if (conditions_[decode_machine(i)].state != machine_state::live) continue;
    const auto& d = decodes_[i];
    ++out.running;
    out.load += decode_occupancy(d.running(), d.waiting(), d.context_tokens());
  }
  out.load /= std::max(out.running, 1u);
  return out;
}

void simulation::decide_on_machines() {
  const auto& e = options_.elastic;
  auto prefill = is_coupled() ? coupled_load() : prefill_load(), decode = decode_load();
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
  if (is_coupled()) {
    if (e.nodes.most > 0) scale(wish_of(machine_role::node, elastic_.prefill, prefill));
  } else {
    pool_wish more{machine_role::prefill}, most{machine_role::decode};
    if (e.prefill.most > 0) more = wish_of(machine_role::prefill, elastic_.prefill, prefill);
    if (e.decode.most > 0) most = wish_of(machine_role::decode, elastic_.decode, decode);
    if (e.switch_roles) hand_over(more, most);
    const bool content = more.there == more.wanted && most.there == most.wanted;
    scale(more);
    scale(most);
    if (e.switch_roles && content) switch_roles(prefill, decode);
  }
  events_.push(now_ + from_sec(e.every_s), event_kind::elastic, 0);
}

/// Those that come to a role: asked for, or on their way from the other one.
std::uint32_t simulation::coming_to(machine_role role) const {
  auto coming = machines_in(role, machine_state::starting);
  const auto other = role == machine_role::prefill ? machine_role::decode : machine_role::prefill;
  for (std::uint32_t i = 0; role != machine_role::node && i < count_of(other); ++i) {
    const auto& c = conditions_[machine_of(other, i)];
    coming += c.state == machine_state::draining && c.leaves == machine_leaves::for_other_role;
  }
  return coming;
}

simulation::pool_wish simulation::wish_of(machine_role role, autoscaler& scaler, const pool_load& load) {
  const auto coming = coming_to(role);
  return {role, load.running + coming, scaler.wanted(load.load, load.running, coming, clock())};
}

/// A machine that one role would let go changes to the one that asks for more, which it reaches sooner than a
/// new one.
void simulation::hand_over(pool_wish& one, pool_wish& other) {
  for (auto [gives, takes] : {std::pair{&one, &other}, {&other, &one}}) {
    while (gives->there > gives->wanted && takes->there < takes->wanted &&
           dismiss(gives->role, machine_leaves::for_other_role)) {
      --gives->there;
      ++takes->there;
    }
  }
}

void simulation::scale(pool_wish wish) {
  for (; wish.wanted > wish.there && stay(wish.role); ++wish.there) {
  }
  for (; wish.wanted > wish.there && hire(wish.role, options_.elastic.start_s); ++wish.there) {
  }
  for (; wish.wanted < wish.there && dismiss(wish.role, machine_leaves::for_good); --wish.there) {
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
  const bool prefill_gives = *giver == instance_role::prefill;
  const auto gives = prefill_gives ? machine_role::prefill : machine_role::decode;
  const auto takes = prefill_gives ? machine_role::decode : machine_role::prefill;
  const auto& e = options_.elastic;
  const auto least = prefill_gives ? e.prefill.least : e.decode.least;
  const auto most = prefill_gives ? e.decode.most : e.prefill.most;
  if (e.scales() && (machines_in(gives, machine_state::live) <= least ||
                     count_of(takes) - machines_in(takes, machine_state::off) >= most))
    return;
  dismiss(gives, machine_leaves::for_other_role);
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
  empty_memory(machine);
  changed(machine, change_kind::stops);
  pay(c, now_);
  if (!switches) return;
  hire(role == machine_role::prefill ? machine_role::decode : machine_role::prefill,
       options_.elastic.switch_s);
}

void simulation::changed(std::uint32_t machine, change_kind what) {
  out_.changes.push_back({to_sec(now_), role_of(machine), instance_of(machine), what});
  for (const auto role : {is_coupled() ? machine_role::node : machine_role::prefill, machine_role::decode}) {
    auto& most = role == machine_role::decode ? out_.most_decode : out_.most_prefill;
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
