#pragma once
// The state that all parts of one simulation share.

#include <algorithm>
#include <span>

#include "runtime/sched/journal/recorded_core.hpp"
#include "runtime/sched/journal/worker_journal.hpp"
#include "runtime/sim/agenda.hpp"
#include "runtime/sim/cluster_layout.hpp"
#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/outcome.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/request_table.hpp"

namespace mooncaf::sim {

/// Each of these guards its own data. Parts that know each other beyond this are given each other by name.
/// @thread  Owned by the simulation, and outlives its parts.
struct world {
  /// @param o  as checked by `check_options`.
  explicit world(const simulation_options& o);

  const simulation_options options;
  const cluster_layout layout;
  const cost_model prefill_costs, decode_costs;  ///< how long steps take
  agenda time;
  request_table requests;
  journal::recorder journal;
  recorded_core conductor;            ///< as it runs in a live cluster
  journal::worker_journal decisions;  ///< of all workers
  random_source noise;                ///< of step times
  outcome out;                        ///< every figure has one part that counts it

  admission_queue_options queue_options() const noexcept {
    return {options.max_queued, from_seconds(options.ttft_slo_s)};
  }
  /// Leading blocks of a prompt that need not be computed, wherever they are.
  std::span<const block_key> reusable_keys(const request_state_record& r) const {
    const auto reusable = (r.prompt_tokens - 1) / options.hardware.block_tokens;
    return std::span{r.keys}.first(std::min<std::size_t>(reusable, r.keys.size()));
  }
};

}  // namespace mooncaf::sim
