#pragma once
// What the sections of mooncaf_sim_bench share.

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/sim/simulation.hpp"
#include "runtime/sim/workload_generator.hpp"

namespace mooncaf::sim::bench {

using records = std::vector<workload_record>;

inline records trace;  // the conversation trace

inline simulation_options paper_cluster(std::uint32_t prefill = 8, std::uint32_t decode = 8) {
  simulation_options o;
  const auto hardware = builtin_profile("a800x8-llama70b");
  if (!hardware) std::exit(1);
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

inline outcome run(const simulation_options& o, const records& r = trace) {
  auto out = simulation{o}.run(*replay_of(r));
  if (!out) std::exit(1);
  return std::move(*out);
}

inline records made(workload_options o) {
  auto source = generate(o);
  records all;
  for (workload_record r; *(*source)->next(r);) all.push_back(r);
  return all;
}

inline std::string name(auto value) { return std::string{to_string(value)}; }

/// The speed at which prefill is offered as much work as it can do, hits as at the speed of the trace.
inline double full_load(const simulation_options& o, const records& r) {
  const auto out = run(o, r);
  return 1 / (out.prefill_busy * out.span_s / out.last_arrival_s);
}

inline workload_options kind(workload_kind k, std::uint64_t n, double input = 0) {
  workload_options o;
  o.kind = k;
  o.requests = n;
  o.input_mean = input;
  return o;
}

// sim_bench_admission.cpp
void overload();
void oscillation();
// sim_bench_memory.cpp
void memory();
// sim_bench_family.cpp
void family();
// sim_bench_hindsight.cpp
void hindsight();

}  // namespace mooncaf::sim::bench
