// The planned stop of a process: carries out what `drain_core` wants.

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <future>
#include <thread>

#include "actors/process/process.hpp"
#include "runtime/log/log.hpp"
#include "runtime/request/drain_core.hpp"

namespace mooncaf {

namespace {

constexpr auto look_interval = std::chrono::milliseconds(20);
constexpr auto answer_limit = std::chrono::seconds(1);

}  // namespace

void process::drain() {
  drain_core core{{http_ != nullptr, computes() || opts().cluster.engine}, opts().cluster.drain_timeout};
  const auto root = caf::actor_cast<node_actor>(info_.node);
  caf::scoped_actor self{*system_};
  drain_facts facts;
  const auto carry_out = [&](drain_order order) {
    switch (order) {
      case drain_order::close_front:
        if (metrics_port_.server) metrics_port_.server->drain();
        return http_->drain();
      case drain_order::announce:
        return caf::anon_send(root, drain_atom_v);
      case drain_order::hand_over:
        for (const auto& w : local_.prefill) caf::anon_send(w, leave_atom_v);
        for (const auto& w : local_.decode) caf::anon_send(w, leave_atom_v);
        if (local_.engine) caf::anon_send(local_.engine, leave_atom_v);
        return;
      case drain_order::leave:
        return;
    }
  };
  // A second signal ends the process from a thread of its own (`stop_at_once`), so nothing here waits for one.
  const auto began = clock_type::now();
  std::future<void> objects;  // while requests end
  if (objects_ && opts().cluster.drain_timeout > duration::zero())
    objects =
        std::async(std::launch::async, [&] { objects_->hand_over(began + opts().cluster.drain_timeout); });
  core.begin(began);
  while (true) {
    const auto orders = core.take_orders();
    for (const auto order : orders) carry_out(order);
    if (core.over()) return;
    std::this_thread::sleep_for(look_interval);
    if (http_) {
      facts.at_front = http_->answering();
      facts.connections = http_->connections();
    }
    self->request(root, answer_limit, status_atom_v)
        .receive(
            [&](const node_report& now) {
              facts.held = now.requests_live;
              facts.announced = now.announced;
              facts.last = now.last;
            },
            [](const caf::error&) {});
    if (!orders.empty()) log_info("draining", {{"waits for", core.waits_for(facts)}});
    core.look(facts, clock_type::now());
  }
}

}  // namespace mooncaf
