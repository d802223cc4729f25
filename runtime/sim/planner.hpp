#pragma once
// Which cluster serves a trace, and with how much to spare.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/sim/options.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

struct plan_request {
  simulation_options base;  ///< hardware, SLOs, everything that is not searched
  std::uint32_t nodes = 16;
  double target = 0.99;  ///< share of requests that must end inside both SLOs
};

/// A configuration and how fast the trace may be played until less than the target is met.
struct plan_point {
  std::uint32_t prefill = 0, decode = 0;
  placement_policy policy = placement_policy::kvcache_centric;
  std::uint64_t dram_tokens = 0;
  double margin = 0;  ///< 1.5: half as much traffic again; below 1: too little
};

struct plan_result {
  plan_point best;
  std::vector<plan_point> ratios, policies, caches;  ///< around the best: one thing changed at a time
};

/// The largest replay speed, within 2 %, at which `options` meet the target; 0 if not even a 64th of it.
double capacity(const simulation_options& options, const std::vector<workload_record>& records,
                double target);

/// Searches the ratio of prefill to decode first, then the policy, then the size of the cache.
/// @param progress  called before each configuration with what is tried; may be empty.
/// @cost  about ten runs per configuration.
plan_result plan(const plan_request& request, const std::vector<workload_record>& records,
                 const std::function<void(const std::string&)>& progress = {});

}  // namespace mooncaf::sim
