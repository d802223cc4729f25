#include "runtime/sim/scaling.hpp"

#include <algorithm>
#include <utility>

#include "runtime/sim/machine_event.hpp"

namespace mooncaf::sim {

namespace {

constexpr ticks look_again = from_sec(0.5);  ///< whether a machine that drains is done

autoscaler scaler_of(const elastic_options& o, const instance_range& range) {
  return autoscaler{
      {std::max(range.least, 1u), std::max(range.most, 1u), o.target, 0.1, from_seconds(o.down_after_s)}};
}

constexpr worker_role other(worker_role role) noexcept {
  return role == worker_role::prefill ? worker_role::decode : worker_role::prefill;
}

}  // namespace

scaling::scaling(world& w, cluster& c)
    : w_(w),
      c_(c),
      prefill_scaler_(scaler_of(w.options.elastic, w.layout.coupled() && w.options.elastic.nodes.scales()
                                                       ? w.options.elastic.nodes
                                                       : w.options.elastic.prefill)),
      decode_scaler_(scaler_of(w.options.elastic, w.options.elastic.decode)),
      roles_({.hold = from_seconds(w.options.elastic.hold_s)}),
      busy_(w.layout.prefill()) {}

void scaling::begin() {
  looked_ = w_.time.now();
  const auto& e = w_.options.elastic;
  if (e.any()) w_.time.add(looked_ + from_sec(e.look_s()), event_kind::elastic, 0);
}

/// Share of the time since the last look in which prompts were computed.
double scaling::prompts_share(std::uint32_t instance) {
  const double window = std::max(to_sec(w_.time.now() - looked_), 1e-9);
  const auto busy = c_.prompts_busy(instance);
  const auto worked = to_sec(busy - std::exchange(busy_[instance], busy));
  return std::clamp(worked / window, 0.0, 1.0);
}

/// Of coupled nodes the fuller of both, prompts and decoding.
pool_load scaling::prefill_load() {
  pool_load out;
  const auto& layout = w_.layout;
  for (std::uint32_t i = 0; i < layout.prefill(); ++i) {
    const double worked = prompts_share(i);
    if (!c_.machines.is(i, machine_state::live)) continue;
    ++out.running;
    const double prompts = worked + w_.conductor.load_of(layout.prefill_id(i), w_.time.clock());
    out.load +=
        layout.coupled()
            ? std::max(prompts, decode_occupancy(c_.coupled.running(i), 0, c_.coupled.context_tokens(i)))
            : prompts;
  }
  out.load /= std::max(out.running, 1u);
  return out;
}

double scaling::decode_occupancy(std::size_t running, std::size_t waiting, std::uint64_t context) const {
  const auto& machine = w_.options.decode_profile();
  const auto& costs = w_.decode_costs;
  return fullness({static_cast<double>(running), static_cast<double>(waiting), static_cast<double>(context),
                   static_cast<double>(machine.max_batch), static_cast<double>(machine.device_kv_tokens),
                   costs.decode_step(running, context), costs.decode_step(0, 0), w_.options.tbt_slo_s});
}

pool_load scaling::decode_load() const {
  pool_load out;
  const auto& d = c_.decodes;
  for (std::uint32_t i = 0; i < d.size(); ++i) {
    if (!c_.machines.is(w_.layout.decode_machine(i), machine_state::live)) continue;
    ++out.running;
    out.load += decode_occupancy(d.running(i), d.waiting(i), d.context_tokens(i));
  }
  out.load /= std::max(out.running, 1u);
  return out;
}

void scaling::decide() {
  const auto& e = w_.options.elastic;
  auto prefill = prefill_load(), decode = decode_load();
  const auto apart = from_seconds(e.look_s());
  auto calm_span = from_seconds(e.calm_s());
  if (e.switch_roles) calm_span = std::max(calm_span, 2 * roles_.hold(w_.time.clock()));
  prefill_calm_.settle(prefill, apart, calm_span);
  decode_calm_.settle(decode, apart, calm_span);
  looked_ = w_.time.now();
  if (w_.layout.coupled()) {
    if (e.nodes.scales()) scale(wish_of(worker_role::node, prefill_scaler_, prefill));
  } else {
    pool_wish more{worker_role::prefill}, most{worker_role::decode};
    if (e.prefill.scales()) more = wish_of(worker_role::prefill, prefill_scaler_, prefill);
    if (e.decode.scales()) most = wish_of(worker_role::decode, decode_scaler_, decode);
    if (e.switch_roles) hand_over(more, most);
    const bool content = more.there == more.wanted && most.there == most.wanted;
    scale(more);
    scale(most);
    if (e.switch_roles && content) switch_roles(prefill, decode);
  }
  w_.time.add(w_.time.now() + from_sec(e.look_s()), event_kind::elastic, 0);
}

/// Machines that were asked for, or are on their way from the other role.
std::uint32_t scaling::coming_to(worker_role role) const {
  const auto starting = c_.machines.count(role, machine_state::starting);
  return role == worker_role::node ? starting : starting + c_.machines.changing_from(other(role));
}

scaling::pool_wish scaling::wish_of(worker_role role, autoscaler& scaler, const pool_load& load) {
  const auto there = load.running + coming_to(role);
  return {role, there, scaler.wanted(load, there, w_.time.clock())};
}

/// A machine that one role would let go changes to the one that asks for more, which it reaches sooner than a
/// new one.
void scaling::hand_over(pool_wish& one, pool_wish& another) {
  for (auto [gives, takes] : {std::pair{&one, &another}, {&another, &one}}) {
    while (gives->there > gives->wanted && takes->there < takes->wanted &&
           dismiss(gives->role, machine_leaves::for_other_role)) {
      --gives->there;
      ++takes->there;
    }
  }
}

void scaling::scale(pool_wish wish) {
  for (; wish.wanted > wish.there && c_.machines.keep_one(wish.role); ++wish.there) {
  }
  for (; wish.wanted > wish.there && hire(wish.role, w_.options.elastic.start_s); ++wish.there) {
  }
  for (; wish.wanted < wish.there && dismiss(wish.role, machine_leaves::for_good); --wish.there) {
  }
}

void scaling::switch_roles(const pool_load& prefill, const pool_load& decode) {
  const auto& m = c_.machines;
  for (const auto role : {worker_role::prefill, worker_role::decode}) {
    for (const auto state : {machine_state::starting, machine_state::draining}) {
      if (m.count(role, state) > 0) return;  // one at a time
    }
  }
  const auto giver = roles_.decide(prefill, decode, w_.time.clock());
  if (!giver) return;
  const bool prefill_gives = *giver == worker_role::prefill;
  const auto gives = prefill_gives ? worker_role::prefill : worker_role::decode, takes = other(gives);
  const auto& e = w_.options.elastic;
  const auto least = prefill_gives ? e.prefill.least : e.decode.least;
  const auto most = prefill_gives ? e.decode.most : e.prefill.most;
  if (e.scales() && (m.count(gives, machine_state::live) <= least ||
                     w_.layout.count_of(takes) - m.count(takes, machine_state::off) >= most))
    return;
  dismiss(gives, machine_leaves::for_other_role);
}

/// @returns whether there was a machine to hire.
bool scaling::hire(worker_role role, double seconds) {
  const auto machine = c_.machines.hire(role);
  if (!machine) return false;
  w_.time.add(w_.time.now() + from_sec(seconds), event_kind::machine, *machine,
              stamp_of(machine_event::serves));
  return true;
}

/// @returns whether there was a machine to dismiss.
bool scaling::dismiss(worker_role role, machine_leaves why) {
  const auto machine = c_.machines.dismiss(role, why);
  if (machine) look_at_leaving(*machine);
  return machine.has_value();
}

void scaling::look_at_leaving(std::uint32_t machine) {
  if (!c_.machines.leaves(machine)) return;
  if (c_.is_needed(machine)) {
    return w_.time.add(w_.time.now() + look_again, event_kind::machine, machine,
                       stamp_of(machine_event::drains));
  }
  const auto why = c_.machines.let_go(machine);
  c_.empty_memory(machine);
  if (why == machine_leaves::for_other_role)
    hire(other(w_.layout.role_of(machine)), w_.options.elastic.switch_s);
}

}  // namespace mooncaf::sim
