#pragma once
// One process in the cluster: finds the conductor, gets to know its peers, watches them, reports load.
//
//   dial(join) ─► hello ─► conductor.join ─► members ─► dial each ─► hello ─► peer_up to the local actors
//                                                                                 │ link lost
//        ▲ conductor lost: dial again                                             ▼
//        └────────────────────────────────────────────────────────────────── peer_down
//
// Dialling blocks, so it is the work of an executor. The direct link matters: a handle that was learned
// through a third node is routed through it and never reports the death of its process.

#include <caf/typed_event_based_actor.hpp>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"

namespace mooncaf {

/// The actors of this process; empty handles for roles that it does not have.
struct local_actors {
  conductor_actor conductor;
  cache_shard_actor shard;
  messenger_actor messenger;
  pool_keeper_actor keeper;
  gateway_actor gateway;
  std::vector<prefill_worker_actor> prefill;
  std::vector<decode_worker_actor> decode;
};

/// Opens a link to a node and returns its root actor. Blocks.
using dial_function = std::function<result<node_actor>(const std::string& host, std::uint16_t port)>;

class node final : public node_actor::base {
 public:
  /// @param self_info  everything about this process but the handles that only the actor system knows.
  /// @param join       where the conductor's node answers; nothing if the conductor is here.
  node(caf::actor_config& config, context_ptr context, local_actors local, node_info self_info,
       std::optional<host_port> join, dial_function dial, executor_actor dialler);

  const char* name() const override { return "mooncaf.node"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  void tick();
  void look_for_conductor();
  void greet(const host_port& where, std::function<void(const node_info&)> then);
  void join(const conductor_actor& conductor);
  void meet(const node_info& peer);
  void lost(const caf::down_msg& down);
  void follow(const conductor_actor& conductor);
  /// Tells the conductor, if there is one, and the metrics how things stand here.
  void report();
  void measure(const node_report& mine) const;
  caf::result<node_report> status();

  context_ptr context_;
  local_actors local_;
  node_info info_;
  std::optional<host_port> join_;
  dial_function dial_;
  executor_actor dialler_;
  conductor_actor conductor_;
  node_id conductor_node_;
  std::unordered_map<node_id, node_info> peers_;
  bool dialling_ = false;
};

}  // namespace mooncaf
