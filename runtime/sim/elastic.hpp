#pragma once
// A cluster that grows and shrinks with its load, or lets machines change their roles.

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/base/instance_range.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/scheduler_defaults.hpp"
#include "runtime/sim/disturbance.hpp"

namespace mooncaf::sim {

/// Changes of a cluster while it serves. The live server's are `elastic_roles` and `elastic_nodes`.
struct elastic_options {
  instance_range prefill, decode;  ///< autoscaling (`autoscaler`)
  instance_range nodes;            ///< … of coupled ones
  double start_s = 120;            ///< from asking for a machine until it serves: boot, load, join
  double target = defaults::scheduler::target_load;  ///< load of an instance that is aimed at
  /// Fewer only if no more were needed for so long.
  double down_after_s = to_seconds(defaults::scheduler::down_after);

  /// `role_switch`. Where both roles scale, too, a machine that one would let go is given to the other.
  bool switch_roles = false;
  double switch_s = 60;  ///< from drained in one role until it serves in the other

  /// For which one role must have been the fuller one.
  double hold_s = to_seconds(defaults::scheduler::elastic_hold);

  /// At which all of this is decided; at least twice in `hold_s` where nothing scales.
  double every_s = to_seconds(defaults::scheduler::scale_every);

  bool scales() const noexcept { return prefill.scales() || decode.scales() || nodes.scales(); }
  /// The span over which loads are means.
  double calm_s() const noexcept { return scales() ? defaults::scheduler::calm_looks * every_s : 2 * hold_s; }
  double look_s() const noexcept { return any() && !scales() ? std::min(every_s, hold_s / 2) : every_s; }
  bool any() const noexcept { return scales() || switch_roles; }
};

/// The price of an hour of a machine; 0: not known.
struct hourly_price {
  double prefill = 0, decode = 0;
  std::string currency;  ///< empty: there are no prices
};

/// A machine that was asked for, serves, drains, or is gone.
enum class change_kind : std::uint8_t { starts, serves, drains, stops };
struct machine_change {
  double at_s = 0;
  worker_role role = worker_role::prefill;
  std::uint32_t instance = 0;
  change_kind what = change_kind::starts;
};

}  // namespace mooncaf::sim
