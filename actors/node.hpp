#pragma once
// The NODE stands for one process in the cluster: a mailbox around `membership_core`, which tells the actors
// of the process of peers and the conductors of their load.
// Dialling blocks, so it is the work of an executor. The direct link matters: a handle that was learned
// through a third node is routed through it and never reports the death of its process.

#include <caf/typed_event_based_actor.hpp>
#include <functional>
#include <string>
#include <unordered_map>

#include "actors/core_actor.hpp"
#include "actors/interfaces.hpp"
#include "actors/local_actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/membership_core.hpp"

namespace mooncaf {

/// Opens a link to a node and returns its root actor. Blocks.
using dial_function = std::function<result<node_actor>(const std::string& host, std::uint16_t port)>;

/// Takes a conductor, which may carry a directory of the object store. Must not block.
using directory_function = std::function<void(const node_info&)>;

class node final : public core_actor<node, node_actor, membership_core> {
 public:
  /// @param self_info  everything about this process but the handles that only the actor system knows.
  /// @param seats      where the conductors' nodes answer.
  /// @param voter      obeys one of them.
  /// @param directory  is told each time that a conductor was found.
  node(caf::actor_config& config, context_ptr context, local_actors local,
       const std::shared_ptr<node_info>& self_info, conductor_seats seats, leadership_voter voter,
       dial_function dial, executor_actor dialler, directory_function directory);

  const char* name() const override { return "mooncaf.node"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  friend core_actor<node, node_actor, membership_core>;

  time_point now() const { return clock().now(); }
  void tick();
  void introduce(greeting_ticket greeting, const node_actor& peer);
  caf::result<node_info> greeted(const node_info& peer);
  /// This node's introduction, with its number for a meeting.
  node_info introduced(std::uint64_t meeting) const;
  /// Tells the conductors and the metrics how things stand here.
  void report();
  void report_to(const introduction_ptr& conductor, std::uint64_t version, node_report mine);

  void carry_out(const membership_action::dial& order);
  void carry_out(const membership_action::found& order);
  void carry_out(const membership_action::join& order);
  void carry_out(const membership_action::follow& order);
  void carry_out(const membership_action::meet& order);
  void carry_out(const membership_action::part& order);
  void carry_out(const membership_action::speak& order) { wire::speak(order.version); }
  void carry_out(const membership_action::complain& order);
  void carry_out(const membership_action::give_up& order) { quit(to_caf(order.why)); }

  context_ptr context_;
  local_actors local_;
  std::shared_ptr<node_info> info_;
  dial_function dial_;
  executor_actor dialler_;
  directory_function directory_;
  std::vector<worker_id> prefills_;                         ///< the workers of this node that prefill
  std::unordered_map<caf::actor_addr, node_id> connected_;  ///< peers whose links are watched
};

}  // namespace mooncaf
