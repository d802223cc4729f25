#pragma once
// The conductor: a mailbox around `cluster_core`, and the members' handles.

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>
#include <unordered_map>

#include "actors/conductor_setup.hpp"

namespace mooncaf {

class conductor final : public conductor_actor::base {
 public:
  conductor(caf::actor_config& config, conductor_setup setup);

  const char* name() const override { return "mooncaf.conductor"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  caf::result<std::vector<node_info>> join(const node_info& node);
  /// Its link broke.
  void leave(node_id node);
  roster_msg report(const node_report& report);
  caf::result<placement_msg> schedule(const schedule_job& job);
  /// How the members reach each other, but for one of them.
  std::vector<node_info> others_of(node_id node) const;
  /// Carries out the orders of the core; to be called after every call of it.
  void act();
  void carry_out(answer_question& what);
  void carry_out(const follow_shard& what);
  void carry_out(copy_blocks& what);
  void carry_out(const member_left& what);
  void carry_out(const charge_expired& what);
  void carry_out(claim_lead& what);
  void carry_out(const log_turn& what);
  void carry_out(const tell_right& what) { setup_.right(what.right); }
  void carry_out(const tell_wish& what);
  void carry_out(play_minutes& what);
  cluster_status status() const;

  conductor_setup setup_;
  cluster_core core_;
  std::unordered_map<schedule_core::ticket, caf::typed_response_promise<placement_msg>> questions_;
  schedule_core::ticket next_question_ = 1;
  std::unordered_map<node_id, node_info> members_;
  time_point started_{};
};

}  // namespace mooncaf
