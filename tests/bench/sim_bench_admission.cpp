// Overload and the oscillation of early rejection: SIMULATION.md, items 4 and 8.

#include <cmath>
#include <cstdio>

#include "runtime/sim/planner.hpp"
#include "tests/bench/sim_bench.hpp"

namespace mooncaf::sim::bench {

namespace {

/// The speed that a cluster without admission control just keeps up with, in prefill or in decode.
double carried(simulation_options o, const records& r) {
  o.admission = admission_policy::none;
  return capacity(o, r, 0.95);
}

void overload_of(const char* what, simulation_options o, const records& r) {
  const double base = carried(o, r);
  std::printf("\n%s: 1x is speed %.2f, where 95 %% still end inside both SLOs\n\n", what, base);
  std::printf(
      "| load | admission | inside SLOs | share | rejected early | at decode | late or slow | wasted "
      "prefill, s | TTFT p50 | TBT p90, ms |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const double load : {1.0, 1.2, 1.5, 2.0, 2.5, 3.0}) {
    for (const double t_d : {5.0, 10.0, 20.0, 40.0}) {
      for (int a = 1; a <= static_cast<int>(admission_policy::priced); ++a) {
        o.admission = static_cast<admission_policy>(a);
        if (t_d != 20 && o.admission != admission_policy::predictive) continue;
        o.decode_span_s = t_d;
        o.speed = load * base;
        const auto out = run(o, r);
        const auto c = out.all();
        const auto label = o.admission == admission_policy::predictive
                               ? "predictive, t_d " + std::to_string(static_cast<int>(t_d)) + " s"
                               : name(o.admission);
        std::printf("| %.1f | %s | %llu | %.1f %% | %llu | %llu | %llu | %.0f | %.1f | %.0f |\n", load,
                    label.c_str(), static_cast<unsigned long long>(c.slo_met), 100 * out.slo_share(),
                    static_cast<unsigned long long>(c.rejected_prefill + c.rejected_decode),
                    static_cast<unsigned long long>(c.rejected_at_decode + c.rejected_memory),
                    static_cast<unsigned long long>(c.completed - c.slo_met), out.wasted_prefill_s,
                    out.ttft.quantile(.5), 1e3 * out.tbt.quantile(.9));
      }
    }
  }
}

struct pool_loads {
  double sd_prefill = 0, sd_decode = 0, correlation = 0;
};

pool_loads loads_of(const outcome& out) {
  std::vector<double> p, d;
  for (const auto& r : out.history.rows()) {
    if (r.at < 0.1 * out.last_arrival_s || r.at > out.last_arrival_s) continue;
    p.push_back(r.prefill_load);
    d.push_back(r.decode_load);
  }
  const auto n = static_cast<double>(std::max<std::size_t>(p.size(), 1));
  double mp = 0, md = 0, pp = 0, dd = 0, pd = 0;
  for (std::size_t i = 0; i < p.size(); ++i) mp += p[i] / n, md += d[i] / n;
  for (std::size_t i = 0; i < p.size(); ++i) {
    pp += (p[i] - mp) * (p[i] - mp), dd += (d[i] - md) * (d[i] - md), pd += (p[i] - mp) * (d[i] - md);
  }
  return {std::sqrt(pp / n), std::sqrt(dd / n), pp > 0 && dd > 0 ? pd / std::sqrt(pp * dd) : 0};
}

}  // namespace

void overload() {
  overload_of("Conversation trace, 8P + 8D", paper_cluster(), trace);
  auto bound = paper_cluster(12, 2);
  bound.tbt_slo_s = 0.06;
  overload_of("Conversation trace, 12P + 2D, TBT 60 ms (decode-bound)", bound, trace);
  overload_of("Generated chat, 8P + 8D", paper_cluster(), made(kind(workload_kind::chat, 8000, 12'000)));
  overload_of("Generated agent, 8P + 8D", paper_cluster(), made(kind(workload_kind::agent, 20'000)));
  overload_of("Generated long documents, 8P + 8D", paper_cluster(),
              made(kind(workload_kind::long_doc, 4000)));
}

void oscillation() {
  std::printf(
      "| cluster, load | admission | sd of prefill load | sd of decode load | correlation "
      "|\n|---|---|---|---|---|\n");
  struct setting {
    std::uint32_t prefill;
    double load;
  };
  // Prefill with capacity to spare, and without.
  for (const auto [prefill, load] : {setting{12, 2}, setting{6, 3}}) {
    for (const auto a :
         {admission_policy::early_running, admission_policy::early, admission_policy::predictive,
          admission_policy::per_request, admission_policy::priced}) {
      auto o = paper_cluster(prefill, 2);
      o.tbt_slo_s = 0.06;
      o.admission = a;
      o.speed = load * carried(o, trace);
      const auto l = loads_of(run(o));
      std::printf("| %uP + 2D, %.0f (speed %.2f) | %s | %.3f | %.3f | %+.2f |\n", prefill, load, o.speed,
                  name(a).c_str(), l.sd_prefill, l.sd_decode, l.correlation);
    }
  }
}

}  // namespace mooncaf::sim::bench
