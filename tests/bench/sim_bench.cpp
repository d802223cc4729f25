// The scheduler on a virtual clock, held against the papers: every table of tests/bench/SIMULATION.md.
//
// usage: mooncaf_sim_bench TRACE [section …]
//        sections: hitrate cost policies overload oscillation memory family coupled poisson ratio network
//        pipeline priorities caches speed scale

#include "tests/bench/sim_bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/sim/hit_ratio.hpp"
#include "runtime/sim/planner.hpp"
#include "runtime/sim/simulation.hpp"
#include "runtime/sim/trace_stats.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;
using namespace mooncaf::sim::bench;

namespace {

void hitrate() {
  std::printf(
      "| blocks | lru | lfu | length_aware | lru, leaf first | lfu, leaf first | length_aware, leaf first |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const std::uint64_t size : {0, 100'000, 50'000, 30'000, 10'000, 1'000}) {
    std::printf("| %s |", size == 0 ? "no end" : std::to_string(size).c_str());
    for (const bool leaf_first : {false, true}) {
      for (const auto p : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}) {
        hit_ratio_pool pool{{p, leaf_first}, size};
        for (const auto& r : trace) pool.request(r);
        std::printf(" %.6f", pool.ratio());
        if (!leaf_first) std::printf(" (prefix %.4f)", pool.prefix_ratio());
        std::printf(" |");
      }
    }
    std::printf("\n");
  }
}

void cost() {
  const auto o = paper_cluster();
  const cost_model costs{o.hardware};
  constexpr double uncached[] = {1.00, 2.05, 4.48, 10.6, 27.5}, cached[] = {0.135, 0.227, 0.406, 0.88, 2.33};
  std::printf(
      "| tokens | uncached, s | published | | 95 %% cached, s | published | | decode, ms "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (int i = 0; i < 5; ++i) {
    const auto n = 8192u << i;
    const double u = costs.prefill(n, 0), c = costs.prefill(n, static_cast<std::uint32_t>(0.95 * n));
    std::printf("| %u | %.3f | %.2f | %+.1f %% | %.3f | %.3f | %+.1f %% | %.1f |\n", n, u, uncached[i],
                100 * (u / uncached[i] - 1), c, cached[i], 100 * (c / cached[i] - 1),
                1e3 * costs.decode_step(1, n));
  }
}

void policies() {
  std::printf(
      "| policy | speed | mean TTFT, s | ratio | p50 | p90 | p99 | found | published (F25) "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  constexpr double published[] = {6.40, 1.72, 1.17, 1.00};
  for (const double speed : {1.0, 1.2, 1.4}) {
    std::map<placement_policy, outcome> by;
    for (int p = 0; p < 4; ++p) {
      auto o = paper_cluster();
      o.policy = static_cast<placement_policy>(p);
      o.speed = speed;
      by.emplace(o.policy, run(o));
    }
    const double best = by.at(placement_policy::kvcache_centric).ttft.mean();
    for (int p = 3; p >= 0; --p) {
      const auto policy = static_cast<placement_policy>(p);
      const auto& out = by.at(policy);
      std::printf("| %s | %.1f | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f %% | %.2f |\n", name(policy).c_str(),
                  speed, out.ttft.mean(), out.ttft.mean() / best, out.ttft.quantile(.5),
                  out.ttft.quantile(.9), out.ttft.quantile(.99), 100 * out.hit_share(), published[p]);
    }
  }
}

void coupled_row(const char* label, simulation_options o, const records& r, double target, double& first) {
  const double speed = capacity(o, r, target);
  if (first == 0) first = speed;
  std::printf("| %s | %.0f ms | %.2f | %+.0f %% |\n", label, 1e3 * o.tbt_slo_s, speed,
              100 * (first / speed - 1));
}

void coupled_table(const records& r) {
  std::printf("| cluster | TBT SLO | carried speed | 8P + 8D carries more by |\n|---|---|---|---|\n");
  for (const double tbt : {0.1, 0.2, 0.3}) {
    double first = 0;
    auto o = paper_cluster();
    o.tbt_slo_s = tbt;
    coupled_row("8P + 8D", o, r, 0.9, first);
    double best = first;
    std::printf("| best of 16 apart |");
    std::uint32_t best_p = 8;
    for (const std::uint32_t p : {10u, 12u, 14u}) {
      o.prefill = p, o.decode = 16 - p;
      const double s = capacity(o, r, 0.9);
      if (s > best) best = s, best_p = p;
    }
    std::printf(" %.0f ms | %.2f (%uP) | |\n", 1e3 * tbt, best, best_p);
    o.prefill = o.decode = 8;
    o.policy = placement_policy::cache_aware;
    for (const auto mode : {coupled_mode::chunked, coupled_mode::batched, coupled_mode::one_by_one}) {
      for (const bool cache : {true, false}) {
        o.coupled = mode;
        o.local_cache = cache;
        o.coupled_chunk = 512;
        const std::string label = std::string{"coupled "} +
                                  (mode == coupled_mode::chunked   ? "chunked (512)"
                                   : mode == coupled_mode::batched ? "batched"
                                                                   : "one by one") +
                                  (cache ? "" : ", no prefix cache");
        coupled_row(label.c_str(), o, r, 0.9, first);
      }
    }
  }
}

/// Poisson arrivals of prompts of one length, half of each a prefix that was there before.
records fixed_length(std::uint32_t tokens, std::uint64_t count, double rate) {
  random_source random{7};
  records all;
  double at = 0;
  std::uint64_t fresh = 1'000'000;
  const auto blocks = tokens / 512, shared = blocks / 2;
  for (std::uint64_t i = 0; i < count; ++i) {
    at += random.exponential(1 / rate);
    workload_record r;
    r.timestamp_ms = static_cast<std::int64_t>(at * 1e3);
    r.input_tokens = tokens;
    r.output_tokens = 512;
    const auto document = random.below(8);
    for (std::uint64_t b = 0; b < shared; ++b) r.hash_ids.push_back(document * 1000 + b);
    while (r.hash_ids.size() < blocks) r.hash_ids.push_back(fresh++);
    all.push_back(r);
  }
  return all;
}

/// Poisson arrivals, SLOs of the arXiv paper: P90 of TTFT up to ten times, of TBT up to five times that of a
/// request alone on a cluster.
void poisson() {
  std::printf("| prompt | SLOs | apart, best split | coupled, one request at a time | batched | chunked |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const std::uint32_t tokens : {16'384u, 32'768u, 65'536u, 131'072u}) {
    const auto r = fixed_length(tokens, 1000, 1);
    auto o = paper_cluster(3, 1);
    const cost_model alone{o.hardware};
    o.tbt = tbt_metric::p90;
    o.ttft_slo_s = 10 * alone.prefill(tokens, tokens / 2);
    o.tbt_slo_s = 5 * alone.decode_step(1, tokens);
    double best = 0;
    std::uint32_t split = 0;
    for (std::uint32_t p = 1; p <= 3; ++p) {
      o.prefill = p, o.decode = 4 - p;
      const double s = capacity(o, r, 0.9);
      if (s > best) best = s, split = p;
    }
    std::printf("| %u | %.1f s, %.0f ms | %.3f/s (%uP + %uD) |", tokens, o.ttft_slo_s, 1e3 * o.tbt_slo_s,
                best, split, 4 - split);
    o.prefill = o.decode = 2;
    o.policy = placement_policy::cache_aware;
    o.coupled_chunk = 512;
    const auto many = o.hardware.max_batch;
    for (const auto mode : {coupled_mode::one_by_one, coupled_mode::batched, coupled_mode::chunked}) {
      o.coupled = mode;
      o.hardware.max_batch = mode == coupled_mode::one_by_one ? 1 : many;
      const double s = capacity(o, r, 0.9);
      std::printf(s > 0 ? " %.3f/s, %+.0f %% |" : " none |", s, 100 * (best / s - 1));
    }
    std::printf("\n");
  }
}

void coupled() {
  std::printf("Conversation trace, 16 nodes, 90 %% inside TTFT 30 s and the TBT SLO\n\n");
  coupled_table(trace);
}

void ratio() {
  std::printf(
      "| P : D | carried speed, TBT 100 ms | mean TTFT at speed 1.5 | TBT p90, ms |\n|---|---|---|---|\n");
  for (const std::uint32_t p : {4u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u}) {
    auto o = paper_cluster(p, 16 - p);
    const double speed = capacity(o, trace, 0.95);
    o.speed = 1.5;
    const auto out = run(o);
    std::printf("| %u : %u | %.2f | %.2f | %.0f |\n", p, 16 - p, speed, out.ttft.mean(),
                1e3 * out.tbt.quantile(.9));
  }
  // What a further sequence costs in a real engine's batch was not published: where the hump is if it costs
  // more.
  std::printf("\n| ms of a further sequence | best P : D | carries | 8 : 8 carries |\n|---|---|---|---|\n");
  for (const double ms : {0.1, 0.5, 1.0, 2.0, 3.0}) {
    std::uint32_t best_p = 0;
    double best = 0, even = 0;
    for (const std::uint32_t p : {6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u}) {
      auto o = paper_cluster(p, 16 - p);
      o.hardware.costs.decode_sequence_s = ms * 1e-3;
      const double speed = capacity(o, trace, 0.95);
      if (speed > best) best = speed, best_p = p;
      if (p == 8) even = speed;
    }
    std::printf("| %.1f | %u : %u | %.2f | %.2f |\n", ms, best_p, 16 - best_p, best, even);
  }
}

void network() {
  std::printf(
      "| Gbit/s per node | mean TTFT, s | p90 | hand-over p90, ms | fetches | senders busy "
      "|\n|---|---|---|---|---|---|\n");
  for (const double gbit : {10., 25., 50., 75., 100., 150., 200., 400., 800.}) {
    auto o = paper_cluster();
    o.hardware.nic_bytes_per_s = gbit * 1e9 / 8;
    const auto out = run(o);
    std::printf("| %.0f | %.2f | %.2f | %.0f | %llu | %.1f %% |\n", gbit, out.ttft.mean(),
                out.ttft.quantile(.9), 1e3 * out.handover.quantile(.9),
                static_cast<unsigned long long>(out.fetches), 100 * out.network_busy);
  }
}

void pipeline() {
  std::printf("| prompt | group of 1 | of 2 | of 4 |\n|---|---|---|---|\n");
  for (const std::uint32_t tokens : {2048u, 8192u, 32'768u, 131'072u}) {
    std::printf("| %u |", tokens);
    for (const std::uint32_t stages : {1u, 2u, 4u}) {
      auto o = paper_cluster(1, 1);
      o.pipeline = stages;
      o.hardware.chunk_tokens = 4096;
      std::printf(" %.2f s |", run(o, fixed_length(tokens, 1, 1)).ttft.mean());
    }
    std::printf("\n");
  }
  std::printf("\n| conversation trace, 8 prefill nodes | mean TTFT, s | p50 | p99 |\n|---|---|---|---|\n");
  for (const std::uint32_t stages : {1u, 2u, 4u}) {
    auto o = paper_cluster(8 / stages, 8);
    o.pipeline = stages;
    const auto out = run(o);
    std::printf("| %u groups of %u | %.2f | %.2f | %.2f |\n", 8 / stages, stages, out.ttft.mean(),
                out.ttft.quantile(.5), out.ttft.quantile(.99));
  }
}

void priorities_section() {
  std::printf("| load | admission | high: inside SLOs | normal | low |\n|---|---|---|---|---|\n");
  auto o = paper_cluster();
  const double full = full_load(o, trace);
  o.high_share = 0.2;
  o.low_share = 0.3;
  for (const double load : {0.5, 1.0, 1.5, 2.0, 3.0}) {
    for (const auto a : {admission_policy::early, admission_policy::priced}) {
      o.admission = a;
      o.speed = load * full;
      const auto out = run(o);
      std::printf("| %.1f | %s |", load, name(a).c_str());
      for (const auto& c : out.by_priority)
        std::printf(" %.2f %% |", 100. * static_cast<double>(c.slo_met) / static_cast<double>(c.arrived));
      std::printf("\n");
    }
  }
}

void caches() {
  std::printf(
      "| tokens of cache per node | eviction | leaf first | found | mean TTFT, s |\n|---|---|---|---|---|\n");
  for (const std::uint64_t tokens : {500'000, 1'000'000, 3'000'000}) {
    for (const auto e : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}) {
      for (const bool leaf : {false, true}) {
        auto o = paper_cluster();
        o.hardware.dram_tokens = tokens;
        o.eviction = e;
        o.leaf_first = leaf;
        const auto out = run(o);
        std::printf("| %llu | %s | %s | %.2f %% | %.3f |\n", static_cast<unsigned long long>(tokens),
                    name(e).c_str(), leaf ? "yes" : "no", 100 * out.hit_share(), out.ttft.mean());
      }
    }
  }
  std::printf(
      "\n| disk per node, tokens | write policy | found | of it on disk | written, TB | mean TTFT, s "
      "|\n|---|---|---|---|---|---|\n");
  for (const auto w :
       {write_policy::write_back, write_policy::write_through, write_policy::write_through_selective}) {
    auto o = paper_cluster();
    o.hardware.dram_tokens = 500'000;
    o.hardware.ssd_tokens = 10'000'000;
    o.write = w;
    const auto out = run(o);
    std::printf("| 10M behind 0.5M of memory | %s | %.2f %% | %.2f %% | %.1f | %.3f |\n", name(w).c_str(),
                100 * out.hit_share(),
                100. * static_cast<double>(out.blocks_ssd) / static_cast<double>(out.blocks()),
                out.bytes_ssd_written * 1e-12, out.ttft.mean());
  }
  std::printf("\nReplicas of the hottest blocks over time (columns: minutes)\n\n");
  auto o = paper_cluster();
  o.watch = hottest_blocks(trace, 8);
  const auto out = run(o);
  const auto& rows = out.history.rows();
  std::printf("| block | 5 | 10 | 20 | 30 | 45 | 58 |\n|---|---|---|---|---|---|---|\n");
  for (std::size_t b = 0; b < o.watch.size(); ++b) {
    std::printf("| %llu |", static_cast<unsigned long long>(o.watch[b]));
    for (const double minute : {5., 10., 20., 30., 45., 58.}) {
      const auto at = std::ranges::find_if(rows, [&](const timeline_row& r) { return r.at >= minute * 60; });
      std::printf(" %.0f |", at == rows.end() ? 0. : static_cast<double>(at->replicas[b]));
    }
    std::printf("\n");
  }
}

/// Of processor time: others may use the machine too.
double seconds_of(const std::function<void()>& work) {
  const auto begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void speed_row(const char* what, const simulation_options& o, trace_source& source) {
  outcome out;
  const double s = seconds_of([&] { out = std::move(*simulation{o}.run(source)); });
  const auto n = static_cast<double>(out.all().arrived);
  std::printf("| %s | %.0f | %.2f | %.0f | %.1f |\n", what, n, s, n / s, static_cast<double>(out.events) / n);
}

constexpr const char* speed_head =
    "| what | requests | seconds of one core | requests/s | events/request |\n|---|---|---|---|---|\n";

void speed() {
  std::printf("%s", speed_head);
  for (int i = 0; i < 3; ++i)
    speed_row("conversation trace x 10, 8P + 8D", paper_cluster(), *replay_of(trace, 10));
}

void scale() {
  std::printf("%s", speed_head);
  auto large = paper_cluster(500, 500);
  large.admission = admission_policy::early;
  auto w = kind(workload_kind::chat, 1'000'000, 12'000);
  w.rate = 3.4 * 60;
  const auto source = generate(w);
  speed_row("generated chat, 500P + 500D, generator included", large, **source);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s TRACE [section …]\n", argv[0]);
    return 2;
  }
  auto read = load_trace(argv[1], {});
  if (!read) {
    std::fprintf(stderr, "%s\n", read.error().detail.c_str());
    return 1;
  }
  trace = std::move(*read);
  const std::vector<std::pair<std::string, std::function<void()>>> sections{
      {"hitrate", hitrate},
      {"cost", cost},
      {"policies", policies},
      {"overload", overload},
      {"oscillation", oscillation},
      {"memory", memory},
      {"family", family},
      {"hindsight", hindsight},
      {"coupled", coupled},
      {"poisson", poisson},
      {"ratio", ratio},
      {"network", network},
      {"pipeline", pipeline},
      {"priorities", priorities_section},
      {"caches", caches},
      {"speed", speed},
      {"scale", scale}};
  for (const auto& [title, make] : sections) {
    if (argc > 2 && std::find(argv + 2, argv + argc, title) == argv + argc) continue;
    std::printf("\n## %s\n\n", title.c_str());
    make();
    std::fflush(stdout);
  }
  return 0;
}
