#pragma once
// The gateway: a mailbox around `gateway_core`, which has the drawing of a request's life.

#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>

#include "actors/client_request.hpp"
#include "actors/core_actor.hpp"
#include "actors/gateway_meter.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/gateway_core.hpp"

namespace mooncaf {

class gateway final : public core_actor<gateway, gateway_actor, gateway_core> {
 public:
  gateway(caf::actor_config& config, const context_ptr& context);

  const char* name() const override { return "mooncaf.gateway"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  friend core_actor;

  gateway(caf::actor_config& config, const context_ptr& context, std::unique_ptr<gateway_meter> meter);

  /// The actor system's, which tests turn.
  time_point now() { return clock().now(); }
  void carry_out(schedule_job& job);
  void carry_out(const request_event& event);
  void carry_out(work_order& order);
  void carry_out(const stop_order& order);
  void carry_out(worker_roll& roll);
  template <class Function>
  void with_worker(worker_id id, Function what);
  void stop(const decode_worker_actor& worker, const attempt_id& id);
  void stop(const prefill_worker_actor& worker, const attempt_id& id);
  void ask_for_kept(const kept_query_ptr& query);
  void peer_up(const node_info& peer);
  void peer_down(node_id peer);

  std::unique_ptr<gateway_meter> meter_;
  conductor_actor conductor_;
  struct known_worker {
    node_id node;
    worker_role role = worker_role::prefill;
    caf::actor handle;
  };
  std::unordered_map<worker_id, known_worker> workers_;  ///< of all peers and this node
  std::unordered_map<node_id, cache_shard_actor> shards_;
};

}  // namespace mooncaf
