#pragma once
// The POOL KEEPER of a node that stores and does not compute: it copies blocks that workers made into the
// local shard, one order after the other, so that they outlive their makers' memory and processes.
//
//   conductor ── keep ──► pool keeper ── pin, reserve ──► shard
//                              │  fetch (pin remote, one-sided read, verify) ──► messenger
//                              └─ commit, release ──► shard ── block events ──► conductor

#include <caf/typed_event_based_actor.hpp>
#include <deque>
#include <memory>
#include <unordered_set>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/base/request_ids.hpp"
#include "runtime/request/block_claim.hpp"

namespace mooncaf {

class pool_keeper final : public pool_keeper_actor::base {
 public:
  pool_keeper(caf::actor_config& config, context_ptr context, cache_shard_actor shard,
              messenger_actor messenger);

  const char* name() const override { return "mooncaf.pool_keeper"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// The order at work.
  struct copy {
    keep_order order;
    block_claim claim;
  };
  using copy_ptr = std::shared_ptr<copy>;

  void take(keep_order order);
  void next();
  void reserve(const copy_ptr& work, std::uint32_t count);
  void fetch(const copy_ptr& work);
  void keep(const copy_ptr& work, const remote_blocks& got);
  /// Frees what was not committed, and goes on with the next order.
  void done(const copy_ptr& work);

  context_ptr context_;
  cache_shard_actor shard_;
  messenger_actor messenger_;
  std::unordered_set<node_id> peers_;
  std::deque<keep_order> waiting_;
  copy_ptr working_;
  request_ids ids_;
};

}  // namespace mooncaf
