#pragma once
// The messenger: fetches prefix blocks from other nodes, and fences peers. A mailbox around the data plane,
// which moves the bytes on threads of its own.

#include <caf/typed_event_based_actor.hpp>
#include <functional>
#include <unordered_map>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"

namespace mooncaf {

class messenger final : public messenger_actor::base {
 public:
  messenger(caf::actor_config& config, context_ptr context, executor_actor blocking);

  const char* name() const override { return "mooncaf.messenger"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  caf::result<remote_blocks> fetch(const fetch_plan& plan);
  /// Reads pinned blocks of the source into the plan's slots, then lets the source go.
  void read(const fetch_plan& plan, remote_blocks held, caf::response_promise reply);

  /// Logs what happened to the rails since the last look.
  void tell_of_rails(std::vector<rail_stats> now);

  context_ptr context_;
  executor_actor blocking_;                                                       ///< fencing waits for peers
  std::unordered_map<node_id, cache_shard_actor> shards_;                         ///< of the peers
  std::unordered_map<std::uint64_t, std::function<void(const error&)>> reading_;  ///< by ticket
  std::uint64_t next_ticket_ = 1;
  std::vector<rail_stats> seen_rails_;
};

}  // namespace mooncaf
