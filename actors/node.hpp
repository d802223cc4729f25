#pragma once
// One process in the cluster: finds the conductor, gets to know its peers, watches them, reports load.
//
//   dial(join) ─► hello ─► conductor.join ─► members ─► dial each ─► hello ─► peer_up to the local actors
//                                              ▲                                  │ link lost, or peer fenced
//        ▲ conductor lost: dial again          └── with back-off, while it is ◄───┤
//        │                                         a member                       ▼
//        └─────────────────────────────────────────────────────────────────── peer_down
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
#include "runtime/sched/peer_roster.hpp"

namespace mooncaf {

/// The actors of this process; empty handles for roles that it does not have.
struct local_actors {
  conductor_actor conductor;
  cache_shard_actor shard;
  messenger_actor messenger;
  pool_keeper_actor keeper;
  device_writer_actor writer;  ///< null where the device computes in memory, or
                               ///< all is written through
  gateway_actor gateway;
  std::vector<prefill_worker_actor> prefill;
  std::vector<decode_worker_actor> decode;
};

/// Opens a link to a node and returns its root actor. Blocks.
using dial_function = std::function<result<node_actor>(const std::string& host, std::uint16_t port)>;

/// Takes the address of the object store's directory that the conductor carries. Must not block.
using directory_function = std::function<void(const std::string& host_and_port)>;

class node final : public node_actor::base {
 public:
  /// @param self_info  everything about this process but the handles that only the actor system knows.
  /// @param join       where the conductor's node answers; nothing if the conductor is here.
  /// @param directory  is told each time that a conductor with a directory was found.
  node(caf::actor_config& config, context_ptr context, local_actors local, node_info self_info,
       std::optional<host_port> join, dial_function dial, executor_actor dialler,
       directory_function directory);

  const char* name() const override { return "mooncaf.node"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// A node that said hello, and when.
  struct acquaintance {
    node_info info;
    time_point since;
  };
  using answered_function = std::function<void(const node_info&)>;
  using missed_function = std::function<void(const error&)>;

  void tick();
  void look_for_conductor();
  void conductor_missed(const error& why);
  void call_members();
  /// @param expected  who should answer there, if that is known.
  void greet(const host_port& where, node_id expected, answered_function answered, missed_function missed);
  void hello(const node_actor& peer, const node_info& mine, answered_function answered,
             missed_function missed);
  caf::result<node_info> greeted(const node_info& peer);
  void join(const conductor_actor& conductor);
  /// These are the members. @param joined  this node has just joined them.
  void learn(const std::vector<node_info>& others, bool joined);
  /// What the conductor makes of us, and who is there.
  void stand(const roster_msg& answer);
  /// @returns whether it was known here and had lost this node, so that its actors were told of both.
  bool meet(const node_info& peer);
  void lost(const caf::down_msg& down);
  /// Peers that the data plane has shut out are greeted anew: only then do both sides agree on what may still
  /// be written.
  void leave_fenced(const node_report& mine, time_point asked);
  /// Tells the local actors that a peer is gone.
  void part(node_id peer, const std::string& why);
  void follow(const conductor_actor& conductor);
  /// Tells the conductor, if there is one, and the metrics how things stand here.
  void report();
  caf::result<node_report> status();
  /// Logs a problem when it is new, not every time that it is met.
  void complain(const std::string& about, const std::string& problem);

  context_ptr context_;
  local_actors local_;
  node_info info_;
  std::optional<host_port> join_;
  dial_function dial_;
  executor_actor dialler_;
  directory_function directory_;
  std::vector<worker_id> prefills_;  ///< the workers of this node that prefill
  conductor_actor conductor_;
  node_id conductor_node_;
  bool joining_ = false;  ///< looking for the conductor, or waiting for its answer
  backoff join_wait_;
  time_point join_at_{};
  peer_roster roster_;
  std::uint64_t roster_version_ = 0;
  std::unordered_map<node_id, node_info> members_;  ///< names and addresses, as the conductor gave them
  std::unordered_map<node_id, acquaintance> peers_;
  std::unordered_map<std::string, std::string> complaints_;  ///< the latest, by what they are about
};

}  // namespace mooncaf
