#pragma once
// A rank of a pipeline group: a mailbox for its leader's greeting around a `rank_session`, which computes.

#include <caf/typed_event_based_actor.hpp>
#include <memory>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/ranks/rank_session.hpp"

namespace mooncaf {

/// To be spawned detached: a greeting takes as long as memory for the session does.
class rank final : public rank_actor::base {
 public:
  rank(caf::actor_config& config, context_ptr context, std::shared_ptr<rank_notices> notices);

  const char* name() const override { return "mooncaf.rank"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  result<rank_welcome> greeted(const rank_greeting& leader);

  context_ptr context_;
  std::shared_ptr<rank_notices> notices_;
  std::unique_ptr<rank_session> session_;  ///< with the latest leader
};

}  // namespace mooncaf
