#pragma once
// A family of clusters, workloads, SLOs and errors that nobody tuned a policy on: each member from its
// number.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/sim/planner.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/simulation.hpp"
#include "runtime/sim/workload_generator.hpp"

namespace mooncaf::sim {

struct family_member {
  std::uint64_t number = 0;
  simulation_options options;  // admission is the caller's
  workload_options workload;
  double load = 1;  // times the speed that the cluster without admission control just carries
  std::vector<workload_record> records;

  std::string text() const {
    constexpr const char* kinds[] = {"chat", "agent", "long_doc"};
    char line[320];
    std::snprintf(
        line, sizeof line,
        "%s %.0f in, %.0f out, bursts %.0f; %s %uP + %uD, KV %.0fk; SLO %.1f s, %.0f ms; jitter %.2f, "
        "told x%.2f, x%.2f; load %.2f",
        kinds[static_cast<int>(workload.kind)], workload.input_mean, workload.output_mean,
        workload.burstiness, options.hardware.name.c_str(), options.prefill, options.decode,
        static_cast<double>(options.hardware.device_kv_tokens) * 1e-3, options.ttft_slo_s,
        1e3 * options.tbt_slo_s, options.jitter, options.prefill_calibration, options.decode_calibration,
        load);
    return line;
  }
};

namespace family_detail {

inline std::vector<workload_record> records_of(const workload_options& w) {
  std::vector<workload_record> records;
  auto source = generate(w);
  for (workload_record r; *(*source)->next(r);) records.push_back(r);
  return records;
}

inline family_member draw(std::uint64_t number, std::uint64_t requests, random_source& random) {
  const auto between = [&](double least, double most) {  // evenly on a logarithmic scale
    return least * std::pow(most / least, random.uniform());
  };
  family_member m;
  m.number = number;
  auto& w = m.workload;
  w.kind = static_cast<workload_kind>(random.below(3));
  w.requests = requests;
  w.input_mean = random.below(3) == 0 ? 0 : std::round(between(1500, 40'000));
  w.output_mean = random.below(3) == 0 ? 0 : std::round(between(25, 900));
  w.burstiness = random.below(2) == 0 ? 0 : std::round(between(1, 20));
  w.seed = random.bits();
  m.records = records_of(w);
  auto& o = m.options;
  o.admission = admission_policy::none;  // for the speed that the cluster just carries
  const auto names = builtin_profiles();
  o.hardware = *builtin_profile(names[random.below(names.size())]);
  o.prefill = 1 + static_cast<std::uint32_t>(random.below(8));
  o.decode = 1 + static_cast<std::uint32_t>(random.below(4));
  auto& kv = o.hardware.device_kv_tokens;
  kv = static_cast<std::uint64_t>(static_cast<double>(kv) * between(0.25, 2));
  o.hardware.dram_tokens = static_cast<std::uint64_t>(between(3e5, 6e6));
  o.hardware.nic_bytes_per_s *= between(0.2, 1);
  // SLOs that the longest prompts keep on an idle cluster, more or less easily.
  std::vector<std::uint32_t> prompts;
  for (const auto& r : m.records) prompts.push_back(r.input_tokens);
  std::ranges::nth_element(
      prompts, prompts.begin() + static_cast<std::ptrdiff_t>(0.95 * static_cast<double>(prompts.size())));
  const auto longest = prompts[static_cast<std::size_t>(0.95 * static_cast<double>(prompts.size()))];
  const cost_model costs{o.hardware};
  o.ttft_slo_s = between(1.5, 12) * costs.prefill(longest, 0);
  o.tbt_slo_s = between(1.4, 6) * costs.decode_step(1, longest);
  o.balancing_threshold = 4;
  o.decode_span_s = 20;
  o.jitter = 0.3 * random.uniform();
  o.prefill_calibration = between(0.5, 2);
  o.decode_calibration = between(0.5, 2);
  o.max_tokens = 8192;  // as long as answers of the generator get
  o.seed = random.bits();
  m.load = between(0.7, 3);
  return m;
}

}  // namespace family_detail

inline constexpr double family_seconds = 300;

/// @param requests  of its workload, at least; 2,500 make runs of some five minutes. @cost  a dozen
/// simulations, to find what the cluster carries.
inline family_member member_of_family(std::uint64_t number, std::uint64_t requests) {
  random_source random{number * 0x9E3779B97F4A7C15 + 1};
  for (;;) {
    auto m = family_detail::draw(number, requests, random);
    const double carried = capacity(m.options, m.records, 0.9);
    if (carried == 0) continue;  // no speed keeps these SLOs
    m.options.speed = m.load * carried;
    // Fast clusters get more requests: a run is to last for several times as long as answers do.
    const double seconds = static_cast<double>(m.records.back().timestamp_ms) * 1e-3 / m.options.speed;
    const double wanted = static_cast<double>(requests) / 2500 * family_seconds / seconds;
    if (wanted > 1) {
      m.workload.requests = static_cast<std::uint64_t>(static_cast<double>(requests) * std::min(wanted, 6.0));
      m.records = family_detail::records_of(m.workload);
    }
    return m;
  }
}

/// Requests inside both SLOs.
inline std::uint64_t met_under(family_member& m, admission_policy admission) {
  auto o = m.options;
  o.admission = admission;
  return simulation{o}.run(*replay_of(m.records))->all().slo_met;
}

}  // namespace mooncaf::sim
