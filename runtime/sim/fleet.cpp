#include "runtime/sim/fleet.hpp"

#include <algorithm>
#include <utility>

#include "runtime/sim/node_memories.hpp"
#include "runtime/sim/profile.hpp"

namespace mooncaf::sim {

fleet::fleet(world& w) : w_(w), all_(w.layout.machines()) {
  for (std::uint32_t m = 0; m < all_.size(); ++m) {
    if (w_.layout.is_there_at_first(m)) join(m);
    else all_[m].state = machine_state::off;
  }
}

/// The conductor hears of a machine, which holds nothing.
void fleet::join(std::uint32_t machine) {
  const auto& layout = w_.layout;
  const auto node = layout.node_of(machine);
  if (layout.role_of(machine) == worker_role::decode)
    return add_instance(layout.decode_id(layout.instance_of(machine)), node, worker_role::decode);
  add_instance(layout.prefill_id(machine), node, worker_role::prefill);
  w_.conductor.memory_of(node, cache_options_of(w_).dram_blocks);
  if (layout.coupled()) add_instance(layout.decode_id(machine), node, worker_role::decode);
}

void fleet::add_instance(worker_id id, node_id node, worker_role role) {
  const auto& o = w_.options;
  const bool prefill = role == worker_role::prefill;
  const auto& machine = prefill ? o.hardware : o.decode_profile();
  instance_desc d;
  d.id = id;
  d.node = node;
  d.role = role;
  d.capacity = machine.max_batch;
  d.capacity_tokens = machine.device_kv_tokens;
  d.reserves_answers = true;
  d.samples = prefill ? prefill_samples(machine, w_.layout.pipeline()) : decode_samples(machine);
  for (auto& s : d.samples) s.seconds *= prefill ? o.prefill_calibration : o.decode_calibration;
  // Neither can fail: the options bound the number of nodes, and ids are counted up.
  (void)w_.conductor.add_node(node);
  (void)w_.conductor.add_instance(d);
}

void fleet::tell(std::uint32_t machine, instance_state state) {
  // Neither can fail: a machine that changes its state has joined.
  (void)w_.conductor.set_state(worker_id{machine + 1}, state);
  if (w_.layout.coupled()) (void)w_.conductor.set_state(w_.layout.decode_id(machine), state);
}

std::uint32_t fleet::count(worker_role role, machine_state state) const {
  const auto begin = all_.begin() + w_.layout.machine_of(role, 0);
  return static_cast<std::uint32_t>(std::count_if(begin, begin + w_.layout.count_of(role),
                                                  [&](const condition& c) { return c.state == state; }));
}

std::uint32_t fleet::changing_from(worker_role role) const {
  const auto begin = all_.begin() + w_.layout.machine_of(role, 0);
  return static_cast<std::uint32_t>(
      std::count_if(begin, begin + w_.layout.count_of(role), [](const condition& c) {
        return c.state == machine_state::draining && c.leaves == machine_leaves::for_other_role;
      }));
}

void fleet::drain_for(std::uint32_t machine, std::uint32_t line) {
  auto& c = all_[machine];
  c.state = machine_state::draining;
  c.line = line;
  tell(machine, instance_state::draining);
}

void fleet::go_away(std::uint32_t machine) {
  all_[machine].state = machine_state::away;
  if (w_.layout.role_of(machine) != worker_role::decode)
    w_.conductor.forget_blocks(w_.layout.node_of(machine));
}

void fleet::come_back(std::uint32_t machine) {
  auto& c = all_[machine];
  c.state = machine_state::live;
  c.line = no_line;
  tell(machine, instance_state::live);
}

void fleet::die(std::uint32_t machine) {
  auto& c = all_[machine];
  c.state = machine_state::dead;
  c.unseen = true;
  c.line = no_line;
  c.leaves = machine_leaves::not_at_all;
  c.died = w_.time.now();
  ++c.lives;
}

bool fleet::notice(std::uint32_t machine) {
  if (!std::exchange(all_[machine].unseen, false)) return false;
  (void)w_.conductor.remove_node(w_.layout.node_of(machine));  // its requests are found by `disturber`
  return true;
}

void fleet::revive(std::uint32_t machine) {
  all_[machine].state = machine_state::live;
  join(machine);
}

std::optional<std::uint32_t> fleet::hire(worker_role role) {
  for (std::uint32_t i = 0; i < w_.layout.count_of(role); ++i) {
    const auto machine = w_.layout.machine_of(role, i);
    auto& c = all_[machine];
    if (c.state != machine_state::off) continue;
    c.state = machine_state::starting;
    c.paid_since = w_.time.now();
    changed(machine, change_kind::starts);
    return machine;
  }
  return std::nullopt;
}

void fleet::serve(std::uint32_t machine) {
  all_[machine].state = machine_state::live;
  join(machine);
  changed(machine, change_kind::serves);
}

std::optional<std::uint32_t> fleet::dismiss(worker_role role, machine_leaves why) {
  if (count(role, machine_state::live) < 2) return std::nullopt;
  for (auto i = w_.layout.count_of(role); i-- > 0;) {
    const auto machine = w_.layout.machine_of(role, i);
    auto& c = all_[machine];
    if (c.state != machine_state::live) continue;
    c.state = machine_state::draining;
    c.leaves = why;
    tell(machine, instance_state::draining);
    changed(machine, change_kind::drains);
    return machine;
  }
  return std::nullopt;
}

bool fleet::keep_one(worker_role role) {
  for (std::uint32_t i = 0; i < w_.layout.count_of(role); ++i) {
    const auto machine = w_.layout.machine_of(role, i);
    auto& c = all_[machine];
    if (c.state != machine_state::draining || c.leaves != machine_leaves::for_good) continue;
    c.state = machine_state::live;
    c.leaves = machine_leaves::not_at_all;
    tell(machine, instance_state::live);
    changed(machine, change_kind::serves);
    return true;
  }
  return false;
}

bool fleet::leaves(std::uint32_t machine) const noexcept {
  return is(machine, machine_state::draining) && all_[machine].leaves != machine_leaves::not_at_all;
}

machine_leaves fleet::let_go(std::uint32_t machine) {
  auto& c = all_[machine];
  c.state = machine_state::off;
  (void)w_.conductor.remove_node(w_.layout.node_of(machine));  // no request is there
  changed(machine, change_kind::stops);
  pay(c, w_.time.now());
  return std::exchange(c.leaves, machine_leaves::not_at_all);
}

void fleet::changed(std::uint32_t machine, change_kind what) {
  auto& out = w_.out;
  const auto& layout = w_.layout;
  out.changes.push_back({to_sec(w_.time.now()), layout.role_of(machine), layout.instance_of(machine), what});
  const auto there = [&](worker_role role) {
    return layout.count_of(role) - count(role, machine_state::off);
  };
  out.most_prefill =
      std::max(out.most_prefill, there(layout.coupled() ? worker_role::node : worker_role::prefill));
  out.most_decode = std::max(out.most_decode, there(worker_role::decode));
}

void fleet::begin_paying() {
  for (auto& c : all_) c.paid_since = c.state == machine_state::off ? -1 : w_.time.now();
  w_.out.most_prefill = w_.layout.first_prefill();
  w_.out.most_decode = w_.layout.first_decode();
}

void fleet::pay(condition& c, ticks until) {
  if (c.paid_since >= 0) c.paid += until - c.paid_since;
  c.paid_since = -1;
}

void fleet::sum_up(ticks end) {
  for (std::uint32_t m = 0; m < all_.size(); ++m) {
    auto& c = all_[m];
    pay(c, std::max(end, c.paid_since));
    const auto role = w_.layout.role_of(m);
    (role == worker_role::decode ? w_.out.decode_machine_s : w_.out.prefill_machine_s) +=
        to_sec(c.paid) * (role == worker_role::prefill ? w_.layout.pipeline() : 1);
  }
}

}  // namespace mooncaf::sim
