#pragma once
// The MESSENGER of a process: fetches prefix blocks from other nodes, and shuts peers out. A mailbox between
// the two state machines that decide (`fetch_core`, `peer_fence`) and the data plane, which moves the bytes
// on threads of its own.
//
//   worker, pool keeper ── fetch ──► messenger ── pin, release ──► shards of other nodes
//   node ── peer up, down ──►         │    ▲
//   decode worker ── fence ──►  read, │    │ ended
//                               close ▼    │
//                                  data plane

#include <caf/typed_event_based_actor.hpp>
#include <unordered_map>

#include "actors/block_reader.hpp"
#include "actors/cluster/guarded_request.hpp"
#include "actors/interfaces.hpp"
#include "actors/peer_shards.hpp"
#include "runtime/compute/transfer_view.hpp"
#include "runtime/sched/peer_fence.hpp"

namespace mooncaf {

class messenger final : public messenger_actor::base {
 public:
  /// @param blocking  closing a peer waits for it, and checksums of many blocks take a while.
  messenger(caf::actor_config& config, context_ptr context, executor_actor blocking);

  const char* name() const override { return "mooncaf.messenger"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  caf::result<remote_blocks> fetch(const fetch_plan& plan, const prefix_load_ptr& load);
  caf::result<void> fence(node_id peer, std::uint64_t fences);
  transfer_report report();

  /// Carries out the orders of the cores; to be called after every call of one of them.
  void act();
  void carry_out(const peer_action::admit& order);
  void carry_out(const peer_action::part& order);
  void carry_out(const peer_action::remove& order);
  void carry_out(const peer_action::close& order);
  void carry_out(const peer_action::close_later& order);
  void carry_out(const peer_action::fenced& order);
  void carry_out(fetch_action::pin& order);
  void carry_out(const fetch_action::release& order);
  void carry_out(const fetch_action::read& order);
  void carry_out(const fetch_action::cancel& order);
  void carry_out(const fetch_action::give_up& order);
  void carry_out(fetch_action::verify& order);
  void carry_out(fetch_action::answer& order);

  context_ptr context_;
  executor_actor blocking_;
  request_guard<messenger> guard_{this};  ///< of requests to peers
  peer_shards shards_;
  block_reader reader_;
  peer_fence peers_;
  fetch_core fetches_;
  std::uint64_t next_ticket_ = 1;                                     ///< of a fetch or a fence
  std::unordered_map<std::uint64_t, caf::response_promise> replies_;  ///< by ticket
  std::unordered_map<fetch_ticket, prefix_load_ptr> loads_;           ///< null: the fetch comes in runs
  rail_log rails_;
};

}  // namespace mooncaf
