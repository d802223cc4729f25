#pragma once
// The POOL KEEPER of a node that stores and does not compute: it copies blocks that workers made into the
// local shard, one order after the other, so that they outlive their makers' memory and processes.
//
//   conductor ── keep ──► pool keeper ── pin, reserve ──► shard
//                              │  fetch (pin remote, one-sided read, verify) ──► messenger
//                              └─ commit, release ──► shard ── block events ──► conductor

#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/copy_core.hpp"

namespace mooncaf {

class pool_keeper final : public pool_keeper_actor::base {
 public:
  pool_keeper(caf::actor_config& config, const context_ptr& context, cache_shard_actor shard,
              messenger_actor messenger);

  const char* name() const override { return "mooncaf.pool_keeper"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// Carries out the orders of the core; to be called after every call of it.
  void act();
  void carry_out(copy_action::pin& order);
  void carry_out(const copy_action::reserve& order);
  void carry_out(copy_action::fetch& order);
  void carry_out(copy_action::commit& order);
  void carry_out(const copy_action::release& order);

  cache_shard_actor shard_;
  messenger_actor messenger_;
  copy_core core_;
};

}  // namespace mooncaf
