#pragma once
// How many nodes of each part a cluster should have. Who starts and stops machines is told (`--scale-command`); the
// conductor starts none.
//
//   reports ─► pool_watch ─► an autoscaler each ─► scale_wish: "prefill=3 decode=2"
//
// A wish is absolute, so that it may be told twice, and obeyed late or not at all: `down_after` later what runs counts
// again. As long it asks for nothing at first, since it does not know what a cluster is being started with.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/instance_range.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/autoscaler.hpp"
#include "runtime/sched/pool_watch.hpp"
#include "runtime/sched/scheduler_defaults.hpp"

namespace mooncaf {

struct elastic_node_options {
  instance_range prefill, decode;
  instance_range nodes;  ///< … that do both: coupled, or changing their roles
  double target = defaults::scheduler::target_load;
  duration down_after = defaults::scheduler::down_after;
  duration every = defaults::scheduler::scale_every;  ///< loads are means over four times as long

  bool any() const noexcept { return prefill.scales() || decode.scales() || nodes.scales(); }
};

/// How many there should be from now on; nothing where that is not asked.
struct scale_wish {
  std::uint32_t prefill = 0, decode = 0, nodes = 0;  ///< 0: not scaled
  double prefill_load = 0, decode_load = 0;          ///< by which it was decided (`pool_load`)

  friend bool operator==(const scale_wish&, const scale_wish&) = default;
};

/// "prefill=3 decode=2": the parts of a cluster's file (`mooncaf scale`), those that are scaled.
std::string counts_of(const scale_wish& wish);

/// @thread  Owned by the conductor; not synchronised.
class elastic_nodes {
 public:
  /// @param ttft_slo, tbt_slo  by which loads are measured.
  /// @param coupled  a node's prefill and decode are one worker, as full as the fuller of both.
  elastic_nodes(const elastic_node_options& options, duration ttft_slo, duration tbt_slo, bool coupled);

  void reported(worker_id worker, const instance_load& load, time_point now);
  void removed(worker_id worker) { watch_.removed(worker); }

  /// To be called about twice a second by the conductor that leads.
  /// @returns a wish that differs from what was asked for last; else nothing.
  std::optional<scale_wish> decide(const cluster_state& cluster, time_point now);

 private:
  struct part {
    instance_range range;
    autoscaler scaler;
    std::uint32_t asked = 0;
    std::optional<time_point> asked_at{};  ///< nothing: never for another number than there was
  };
  part part_of(const instance_range& range) const;
  /// @returns whether it asks for another number now.
  bool look(part& p, pool_load load, time_point now);
  pool_load of_both(const pool_loads& loads) const;

  elastic_node_options options_;
  bool coupled_;
  pool_watch watch_;
  part prefill_, decode_, nodes_;
  std::optional<time_point> began_;
};

}  // namespace mooncaf
