#include "runtime/sim/cluster.hpp"

namespace mooncaf::sim {

bool cluster::idle(std::uint32_t instance) const noexcept {
  if (w_.layout.coupled()) return !coupled.computes_prompts(instance);
  return !prefills.computing(instance) && prefills.waiting(instance) == 0;
}

std::size_t cluster::waiting(std::uint32_t instance) const noexcept {
  return w_.layout.coupled() ? coupled.waiting(instance) : prefills.waiting(instance);
}

ticks cluster::prompts_busy(std::uint32_t instance) const noexcept {
  return w_.layout.coupled() ? coupled.prompts_busy(instance) : prefills.busy(instance);
}

const std::optional<device_tier>& cluster::tier(std::uint32_t instance) const noexcept {
  return w_.layout.coupled() ? coupled.tier(instance) : prefills.tier(instance);
}

bool cluster::start_prefill(std::uint32_t instance) {
  const bool began = prefills.start(instance, decodes.running(instance) > 0);
  decodes.neighbour_changed(instance);
  return began;
}

void cluster::decode_turn(std::uint32_t instance, std::uint32_t stamp) {
  decodes.turn(instance, stamp, prefills.computing(instance));
}

void cluster::kv_arrived(std::uint32_t slot) {
  decodes.arrived(slot, prefills.computing(w_.requests[slot].decode));
}

ticks cluster::busy(std::uint32_t machine) const noexcept {
  const auto i = w_.layout.instance_of(machine);
  switch (w_.layout.role_of(machine)) {
    case worker_role::prefill:
      return prefills.busy(i);
    case worker_role::decode:
      return decodes.busy(i);
    case worker_role::node:
      break;
  }
  return coupled.busy(i);
}

bool cluster::is_needed(std::uint32_t machine) const {
  const auto role = w_.layout.role_of(machine);
  const auto instance = w_.layout.instance_of(machine);
  for (std::uint32_t slot = 0; slot < w_.requests.capacity(); ++slot) {
    const auto& r = w_.requests[slot];
    if (!r.live || !r.placed) continue;
    if (role != worker_role::prefill && r.decode == instance) return true;
    if (role == worker_role::prefill && r.prefill == instance &&
        (r.first_token == 0 || r.kv_sent > w_.time.now()))
      return true;
  }
  return role != worker_role::decode && links.moves(machine);
}

void cluster::change_pace(std::uint32_t machine) {
  const auto role = w_.layout.role_of(machine);
  if (role == worker_role::decode) decodes.change_pace(w_.layout.instance_of(machine));
  if (role == worker_role::node) coupled.change_pace(machine);
}

void cluster::empty_memory(std::uint32_t machine) {
  const auto i = w_.layout.instance_of(machine);
  switch (w_.layout.role_of(machine)) {
    case worker_role::decode:
      return decodes.forget_kv(i);
    case worker_role::prefill:
      prefills.forget_kv(i);
      break;
    case worker_role::node:
      coupled.forget_kv(i);
      break;
  }
  memories.of(i).clear();
}

std::vector<torn_answer> cluster::crash(std::uint32_t machine) {
  links.crash(machine);
  learned.forget(machine);
  const auto i = w_.layout.instance_of(machine);
  std::vector<torn_answer> torn;
  switch (w_.layout.role_of(machine)) {
    case worker_role::decode:
      return decodes.crash(i);
    case worker_role::prefill:
      prefills.crash(i);
      break;
    case worker_role::node:
      torn = coupled.crash(i);
      break;
  }
  memories.of(i).clear();
  return torn;
}

}  // namespace mooncaf::sim
