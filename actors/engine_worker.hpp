#pragma once
// The worker in front of an engine of another make: a mailbox, the engine's connections and `engine_core`, which has the
// drawing of what becomes of a job.

#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/block_followers.hpp"
#include "actors/core_actor.hpp"
#include "actors/engines/engine_client.hpp"
#include "actors/engines/kv_listener.hpp"
#include "actors/interfaces.hpp"
#include "runtime/engines/engine_core.hpp"

namespace mooncaf {

/// What `process` has opened for it.
struct engine_setup {
  engine_core_options core;
  worker_id prefill, decode;  ///< of the node's instances that it is
  std::shared_ptr<engine_client> engine;
  kv_endpoints news;  ///< empty: the engine publishes none
};

class engine_worker final : public core_actor<engine_worker, engine_worker_actor, engine_core> {
 public:
  engine_worker(caf::actor_config& config, engine_setup setup);

  const char* name() const override { return "mooncaf.engine_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  friend core_actor;

  void tick();
  node_report status() const;
  const gateway_actor& gateway_of(const attempt_id& id) const { return gateways_.at(id.owner()); }

  void carry_out(engine_action::ask& order);
  void carry_out(const engine_action::hang_up& order) { setup_.engine->hang_up(order.owner); }
  void carry_out(const engine_action::announce& order) { followers_.announce(*this, order.batch); }
  void carry_out(const engine_action::forget& order) { gateways_.erase(order.owner); }
  void carry_out(first_token& token);
  void carry_out(token_run& run);
  void carry_out(attempt_failed& message);

  engine_setup setup_;
  std::unique_ptr<kv_listener> listener_;
  std::unordered_map<std::uint64_t, gateway_actor> gateways_;  ///< by owner, as the core has its attempts
  block_followers followers_;
};

}  // namespace mooncaf
