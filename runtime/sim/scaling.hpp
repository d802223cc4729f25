#pragma once
// Decides, now and then, how many machines there are and in which role.

#include <cstdint>
#include <vector>

#include "runtime/sched/autoscaler.hpp"
#include "runtime/sched/role_switch.hpp"
#include "runtime/sim/cluster.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

///   off ──hire──► starting ──► live ──dismiss──► draining ──► off        paid from `starting` until `off`
///                                                    └ switches: starting in the other role
class scaling {
 public:
  /// Both outlive the scaling.
  scaling(world& w, cluster& c);

  /// The run begins.
  void begin();
  void decide();
  /// Whether a machine that drains in order to leave is done: then it is switched off, or changes its role.
  void look_at_leaving(std::uint32_t machine);

 private:
  /// How many machines of a role there are, coming ones included, and how many there should be.
  struct pool_wish {
    worker_role role;
    std::uint32_t there = 0, wanted = 0;
  };
  pool_load prefill_load();
  pool_load decode_load() const;
  double prompts_share(std::uint32_t instance);
  double decode_occupancy(std::size_t running, std::size_t waiting, std::uint64_t context) const;
  std::uint32_t coming_to(worker_role role) const;
  pool_wish wish_of(worker_role role, autoscaler& scaler, const pool_load& load);
  void hand_over(pool_wish& one, pool_wish& other);
  void scale(pool_wish wish);
  void switch_roles(const pool_load& prefill, const pool_load& decode);
  bool hire(worker_role role, double seconds);
  bool dismiss(worker_role role, machine_leaves why);

  world& w_;
  cluster& c_;
  autoscaler prefill_scaler_, decode_scaler_;
  role_switch roles_;
  calm_load prefill_calm_, decode_calm_;
  std::vector<ticks> busy_;  // of prefill instances, at the last look
  ticks looked_ = 0;
};

}  // namespace mooncaf::sim
