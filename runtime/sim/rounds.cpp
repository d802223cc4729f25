#include "runtime/sim/rounds.hpp"

namespace mooncaf::sim {

namespace {

constexpr ticks idle_limit = from_sec(60);

}  // namespace

/// Both rounds keep to the multiples of their intervals.
void rounds::expect(ticks since) {
  expected_ = true;
  for (auto* r : {&looks_, &reports_}) r->due = (since / r->interval + 1) * r->interval;
  w_.time.add(next(), event_kind::round, 0, ++stamp_);
}

void rounds::wake() {
  const auto now = w_.time.now();
  busy_at_ = now;
  if (!expected_ || next() > now + reports_.interval) expect(now);
}

void rounds::make(std::uint32_t stamp) {
  if (stamp != stamp_) return;
  const auto now = w_.time.now();
  expected_ = false;
  if (looks_.due == now) look();
  if (reports_.due == now) report();
  if (w_.requests.live() > 0) busy_at_ = now;
  if (now - busy_at_ >= idle_limit) return;
  expect(w_.time.empty() ? now : std::max(now, w_.time.next_at() - idle_limit));
}

/// `cluster_core::tick`.
void rounds::look() {
  copier_.look();
  requests_.look_for_room();
}

/// All nodes report, one after the other: each may have made room.
void rounds::report() {
  for (std::uint32_t m = 0; m < w_.layout.machines(); ++m) {
    requests_.look_for_room();
    if (c_.machines.computes(m)) report_machine(m);
  }
  requests_.look_for_room();
}

void rounds::report_machine(std::uint32_t machine) {
  const auto i = w_.layout.instance_of(machine);
  const auto now = w_.time.clock();
  switch (w_.layout.role_of(machine)) {
    case worker_role::prefill:
      return w_.conductor.report(w_.layout.prefill_id(i), {}, now);
    case worker_role::decode:
      return w_.conductor.report(w_.layout.decode_id(i), c_.decodes.load(i), now);
    case worker_role::node:
      w_.conductor.report(w_.layout.prefill_id(i), {}, now);
      return w_.conductor.report(w_.layout.decode_id(i), c_.coupled.load(i), now);
  }
}

}  // namespace mooncaf::sim
