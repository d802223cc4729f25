#include "runtime/sim/planner.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/sim/simulation.hpp"

namespace mooncaf::sim {

namespace {

constexpr double slowest = 1.0 / 64, fastest = 64;

bool meets(simulation_options options, const std::vector<workload_record>& records, double target,
           double speed) {
  options.speed = speed;
  const auto allowed = static_cast<std::uint64_t>((1 - target) * static_cast<double>(records.size()));
  options.give_up_after = std::max<std::uint64_t>(allowed, 1);
  const auto out = simulation{options}.run(*replay_of(records));
  return out && out->slo_share() >= target;
}

simulation_options options_at(const plan_request& request, const plan_point& at) {
  auto o = request.base;
  o.prefill = at.prefill;
  o.decode = at.decode;
  o.policy = at.policy;
  o.hardware.dram_tokens = at.dram_tokens;
  return o;
}

}  // namespace

double capacity(const simulation_options& options, const std::vector<workload_record>& records,
                double target) {
  double low = 0, high = 0;
  // From the speed of the trace by factors of two to where it fails, or no longer does.
  if (meets(options, records, target, 1)) {
    low = 1;
    while (low < fastest && high == 0) meets(options, records, target, 2 * low) ? low *= 2 : high = 2 * low;
  } else {
    high = 1;
    while (high > slowest && low == 0) meets(options, records, target, high / 2) ? low = high / 2 : high /= 2;
  }
  if (low == 0 || high == 0) return low;
  while (high / low > 1.02) {
    const double middle = std::sqrt(low * high);
    (meets(options, records, target, middle) ? low : high) = middle;
  }
  return low;
}

plan_result plan(const plan_request& request, const std::vector<workload_record>& records,
                 const std::function<void(const std::string&)>& progress) {
  plan_result out;
  out.best = {0, 0, request.base.policy, request.base.hardware.dram_tokens, -1};
  const auto try_at = [&](plan_point at, std::vector<plan_point>& list) {
    if (progress) {
      progress(std::to_string(at.prefill) + "P + " + std::to_string(at.decode) + "D, " +
               std::string{to_string(at.policy)} + ", " + std::to_string(at.dram_tokens) +
               " tokens of cache");
    }
    at.margin = capacity(options_at(request, at), records, request.target);
    list.push_back(at);
  };
  const auto take_best = [&](const std::vector<plan_point>& list) {
    for (const auto& p : list) {
      if (p.margin > out.best.margin) out.best = p;
    }
  };
  for (std::uint32_t prefill = 1; prefill < request.nodes; ++prefill) {
    auto at = out.best;
    at.prefill = prefill;
    at.decode = request.nodes - prefill;
    try_at(at, out.ratios);
  }
  take_best(out.ratios);
  for (const auto policy : {placement_policy::random, placement_policy::load_balancing,
                            placement_policy::cache_aware, placement_policy::kvcache_centric}) {
    auto at = out.best;
    at.policy = policy;
    try_at(at, out.policies);
  }
  take_best(out.policies);
  for (const double factor : {0.0625, 0.25, 0.5, 1.0, 2.0, 4.0}) {
    auto at = out.best;
    at.dram_tokens =
        static_cast<std::uint64_t>(factor * static_cast<double>(request.base.hardware.dram_tokens));
    try_at(at, out.caches);
  }
  return out;  // more memory than was asked about only informs
}

}  // namespace mooncaf::sim
