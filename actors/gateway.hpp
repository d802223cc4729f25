#pragma once
// The gateway: a mailbox around `gateway_core`, which has the drawing of a request's life.

#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>

#include "actors/client_request.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/gateway_core.hpp"

namespace mooncaf {

class gateway final : public gateway_actor::base {
 public:
  gateway(caf::actor_config& config, context_ptr context);

  const char* name() const override { return "mooncaf.gateway"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// Carries out what the core wants done; to be called after every call of it.
  void act();
  void carry_out(schedule_job&& job);
  void carry_out(const request_event& event);
  void carry_out(work_order&& order);
  void carry_out(const stop_order& order);
  void carry_out(worker_roll&& roll);
  void peer_up(const node_info& peer);
  void peer_down(node_id peer);

  context_ptr context_;
  std::unique_ptr<gateway_observer> observer_;
  gateway_core core_;
  conductor_actor conductor_;
  struct known_worker {
    node_id node;
    worker_role role = worker_role::prefill;
    caf::actor handle;
  };
  std::unordered_map<worker_id, known_worker> workers_;  ///< of all peers and this node
};

}  // namespace mooncaf
