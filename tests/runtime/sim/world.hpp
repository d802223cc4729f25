#pragma once
// Traces and runs that several tests need.

#include <doctest/doctest.h>

#include <vector>

#include "runtime/sim/simulation.hpp"
#include "runtime/sim/workload_generator.hpp"

namespace mooncaf::sim {

inline std::vector<workload_record> all_of(const workload_options& options) {
  auto source = generate(options);
  REQUIRE(source);
  std::vector<workload_record> records;
  for (workload_record r; *(*source)->next(r);) records.push_back(r);
  return records;
}

/// As many requests an hour, and as long ones, as in the public conversation trace.
inline std::vector<workload_record> conversation_like(std::uint64_t requests, std::uint64_t seed = 1) {
  workload_options o;
  o.requests = requests;
  o.rate = 3.4;
  o.input_mean = 12'035;
  o.output_mean = 343;
  o.seed = seed;
  return all_of(o);
}

inline simulation_options a800_cluster(std::uint32_t prefill, std::uint32_t decode) {
  simulation_options o;
  const auto hardware = builtin_profile("a800x8-llama70b");
  REQUIRE(hardware);
  o.hardware = *hardware;
  o.prefill = prefill;
  o.decode = decode;
  // As the tables of tests/bench/SIMULATION.md were made.
  o.admission = admission_policy::none;
  o.tbt_slo_s = 0.1;
  o.balancing_threshold = 4;
  o.decode_span_s = 20;
  return o;
}

inline outcome run(const simulation_options& options, const std::vector<workload_record>& records) {
  auto out = simulation{options}.run(*replay_of(records));
  REQUIRE(out);
  return std::move(*out);
}

}  // namespace mooncaf::sim
