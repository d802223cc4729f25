#pragma once
// A rank of a pipeline group: a mailbox around `rank_host`, for the greeting of its leader.

#include <caf/typed_event_based_actor.hpp>

#include "actors/interfaces.hpp"
#include "runtime/ranks/rank_host.hpp"

namespace mooncaf {

/// To be spawned detached: a greeting takes as long as memory for the session does.
class rank final : public rank_actor::base {
 public:
  rank(caf::actor_config& config, rank_self self);

  const char* name() const override { return "mooncaf.rank"; }
  behavior_type make_behavior() override;
  void on_exit() override { host_.close(); }

 private:
  rank_host host_;
};

}  // namespace mooncaf
