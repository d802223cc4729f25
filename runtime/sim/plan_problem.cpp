#include "runtime/sim/plan_problem.hpp"

namespace mooncaf::sim {

simulation_options options_of(const plan_problem& problem, const plan_cluster& c) {
  auto o = problem.base;
  o.hardware = problem.kinds[c.prefill_kind].hardware;
  o.hardware.dram_tokens =
      static_cast<std::uint64_t>(c.cache_factor * static_cast<double>(o.hardware.dram_tokens));
  if (c.ssd_gb >= 0) {
    o.hardware.ssd_tokens =
        static_cast<std::uint64_t>(c.ssd_gb * 1e9 / static_cast<double>(o.hardware.kv_bytes_per_token));
  }
  o.decode_hardware.reset();
  if (c.decode_kind != c.prefill_kind) o.decode_hardware = problem.kinds[c.decode_kind].hardware;
  if (c.nic_gbit >= 0) {
    o.hardware.nic_bytes_per_s = c.nic_gbit * 1e9 / 8;
    if (o.decode_hardware) o.decode_hardware->nic_bytes_per_s = o.hardware.nic_bytes_per_s;
  }
  o.prefill = c.prefill;
  o.decode = c.decode;
  o.pipeline = c.pipeline;
  o.policy = c.policy;
  o.admission = c.admission;
  if (c.coupled() && o.coupled == coupled_mode::off) o.coupled = coupled_mode::chunked;
  if (c.coupled()) o.coupled_chunk = c.chunk;
  if (!c.coupled()) o.coupled = coupled_mode::off;
  return o;
}

plan_parts parts_of(const plan_problem& problem, const plan_cluster& c) {
  const auto& h = problem.kinds[c.prefill_kind].hardware;
  const auto token_gb = static_cast<double>(h.kv_bytes_per_token) * 1e-9;
  return {c.cache_factor * static_cast<double>(h.dram_tokens) * token_gb,
          c.ssd_gb >= 0 ? c.ssd_gb : static_cast<double>(h.ssd_tokens) * token_gb,
          c.nic_gbit >= 0 ? c.nic_gbit : h.nic_bytes_per_s * 8e-9};
}

double cost_of(const plan_problem& problem, const plan_cluster& c) {
  const auto& hour = problem.part_hour;
  const auto parts = parts_of(problem, c);
  const auto& decode = problem.kinds[c.decode_kind];
  const double decode_gbit = c.nic_gbit >= 0 ? c.nic_gbit : decode.hardware.nic_bytes_per_s * 8e-9;
  const double prefill = problem.kinds[c.prefill_kind].node_hour + parts.cache_gb * hour.cache_gb +
                         parts.ssd_gb * hour.ssd_gb + parts.nic_gbit * hour.nic_gbit;
  return c.prefill * c.pipeline * prefill + c.decode * (decode.node_hour + decode_gbit * hour.nic_gbit);
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
  for (const double gb : p.ssd_gb) {
    if (!(gb <= 1e6)) return bad("an SSD for KV has 0 to 1000000 GB");
  }
  for (const double gbit : p.nic_gbit) {
    if (gbit >= 0 && !(gbit >= 1e-3 && gbit <= 1e6)) return bad("a network has 0.001 to 1000000 Gbit/s");
  }
  if (p.pipelines.empty() || p.cache_factors.empty() || p.coupled_chunks.empty() || p.ssd_gb.empty() ||
      p.nic_gbit.empty())
    return bad("nothing to choose from");
  if (!p.disaggregated && !p.coupled) return bad("neither disaggregated nor coupled clusters may be chosen");
  return {};
}

}  // namespace mooncaf::sim
