// Decode's memory as admission sees it: SIMULATION.md, item 14.

#include <cstdio>

#include "runtime/sim/planner.hpp"
#include "tests/bench/sim_bench.hpp"

namespace mooncaf::sim::bench {

namespace {

constexpr const char* head =
    "admission | inside both SLOs | refused: prefill | decode | memory | at decode | late or slow | wasted "
    "prefill, s | hand-over p90, s |\n";

void row(const char* what, simulation_options o) {
  for (int a = 0; a <= static_cast<int>(admission_policy::priced); ++a) {
    o.admission = static_cast<admission_policy>(a);
    const auto out = run(o);
    const auto c = out.all();
    std::printf("| %s | %s | %llu | %llu | %llu | %llu | %llu | %llu | %.0f | %.2f |\n", what,
                name(o.admission).c_str(), static_cast<unsigned long long>(c.slo_met),
                static_cast<unsigned long long>(c.rejected_prefill),
                static_cast<unsigned long long>(c.rejected_decode),
                static_cast<unsigned long long>(c.rejected_memory),
                static_cast<unsigned long long>(c.rejected_at_decode),
                static_cast<unsigned long long>(c.completed - c.slo_met), out.wasted_prefill_s,
                out.handover.quantile(.9));
  }
}

}  // namespace

void memory() {
  std::printf(
      "Conversation trace, 12P + 2D, speed 2.2\n\n| TBT SLO | %s|---|---|---|---|---|---|---|---|---|---|\n",
      head);
  for (const double tbt : {0.06, 0.1, 0.12, 0.2}) {
    auto o = paper_cluster(12, 2);
    o.speed = 2.2;
    o.tbt_slo_s = tbt;
    row((std::to_string(static_cast<int>(1e3 * tbt)) + " ms").c_str(), o);
  }
  struct hardware {
    const char* profile;
    std::uint32_t prefill;
  };
  for (const auto& [profile, prefill] : {hardware{"h200-llama8b", 14}, hardware{"h800x8-llama70b", 12}}) {
    auto o = paper_cluster(prefill, 2);
    o.hardware = *builtin_profile(profile);
    const double base = capacity(o, trace, 0.95);
    std::printf(
        "\n%s, %uP + 2D: load 1 is speed %.2f\n\n| load | %s|---|---|---|---|---|---|---|---|---|---|\n",
        profile, prefill, base, head);
    for (const double load : {1.0, 1.1, 1.5}) {
      o.speed = load * base;
      char label[16];
      std::snprintf(label, sizeof label, "%.1f", load);
      row(label, o);
    }
  }
}

}  // namespace mooncaf::sim::bench
