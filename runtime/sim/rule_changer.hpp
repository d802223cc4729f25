#pragma once
// Admission `adaptive` in a simulated cluster.

#include "runtime/sched/shadow_core.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Plays the conductor's last minutes when they are due. Playing takes no time of the simulated clock.
class rule_changer {
 public:
  /// @param w  outlives it.
  explicit rule_changer(world& w) : w_(w) {}

  /// The run begins.
  void begin();
  /// A play may be due. @returns whether another rule is in force: else the run goes on as if nothing had been played.
  bool look();

 private:
  world& w_;
  shadow_core shadow_;
};

}  // namespace mooncaf::sim
