#include "runtime/sim/plan_problem.hpp"

namespace mooncaf::sim {

simulation_options options_of(const plan_problem& problem, const plan_cluster& c) {
  auto o = problem.base;
  o.hardware = problem.kinds[c.prefill_kind].hardware;
  o.hardware.dram_tokens =
      static_cast<std::uint64_t>(c.cache_factor * static_cast<double>(o.hardware.dram_tokens));
  o.decode_hardware.reset();
  if (c.decode_kind != c.prefill_kind) o.decode_hardware = problem.kinds[c.decode_kind].hardware;
  o.prefill = c.prefill;
  o.decode = c.decode;
  o.pipeline = c.pipeline;
  o.policy = c.policy;
  if (c.coupled() && o.coupled == coupled_mode::off) o.coupled = coupled_mode::chunked;
  if (c.coupled()) o.coupled_chunk = c.chunk;
  if (!c.coupled()) o.coupled = coupled_mode::off;
  return o;
}

double cost_of(const plan_problem& problem, const plan_cluster& c) {
  const auto& prefill = problem.kinds[c.prefill_kind];
  const double cached_gb = c.cache_factor * static_cast<double>(prefill.hardware.dram_tokens) *
                           static_cast<double>(prefill.hardware.kv_bytes_per_token) * 1e-9;
  return c.prefill * c.pipeline * (prefill.node_hour + cached_gb * problem.cache_gb_hour) +
         c.decode * problem.kinds[c.decode_kind].node_hour;
}

result<void> check_problem(const plan_problem& p) {
  const auto bad = [](const std::string& what) { return fail(ec::invalid_argument, what); };
  if (p.kinds.empty()) return bad("no machine to choose from");
  for (const auto n : p.pipelines) {
    if (n == 0 || n > 64) return bad("a pipeline group has 1 to 64 nodes");
  }
  for (const double f : p.cache_factors) {
    if (!(f >= 0) || f > 1000) return bad("a cache may be 0 to 1000 times the profile's");
  }
  if (p.pipelines.empty() || p.cache_factors.empty() || p.coupled_chunks.empty())
    return bad("nothing to choose from");
  if (!p.disaggregated && !p.coupled) return bad("neither disaggregated nor coupled clusters may be chosen");
  return {};
}

}  // namespace mooncaf::sim
