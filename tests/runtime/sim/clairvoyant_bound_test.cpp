// No policy keeps more requests inside both SLOs than the bound of tests/bench/clairvoyant_bound.hpp, and where it is exact.

#include "tests/bench/clairvoyant_bound.hpp"

#include "tests/bench/sim_hindsight.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// Jobs that come at once and have two seconds.
std::vector<timed_work> burst(double at, std::initializer_list<double> machine_s) {
  std::vector<timed_work> out;
  for (const double s : machine_s) out.push_back({at, at + 2, s});
  return out;
}

std::uint64_t most_of(const std::vector<timed_work>& work, double machines, double span_s,
                      std::size_t windows) {
  std::vector<double> arrivals;
  for (const auto& w : work) arrivals.push_back(w.arrival_s);
  window_bound bound{arrivals, span_s, windows};
  bound.limit_by(work, machines);
  return bound.most();
}

/// Prompts of so many tokens, none like another, one every `every_ms`; answers of `output` tokens.
std::vector<workload_record> even_prompts(std::size_t n, std::int64_t every_ms, std::uint32_t input,
                                          std::uint32_t output) {
  std::vector<workload_record> out(n);
  std::uint64_t block = 0;
  for (std::size_t i = 0; i < n; ++i) {
    out[i].timestamp_ms = static_cast<std::int64_t>(i) * every_ms;
    out[i].input_tokens = input;
    out[i].output_tokens = output;
    for (std::uint32_t t = 0; t < input; t += 512) out[i].hash_ids.push_back(++block);
  }
  return out;
}

}  // namespace

TEST_CASE(
    "of jobs that come at once as many can be in time as there is machine time for, the cheapest first") {
  CHECK(most_of(burst(0, {1, 1, 1, 1, 1}), 1, 2, 4) == 2);
  CHECK(most_of(burst(0, {1, 1, 1, 1, 1}), 2, 2, 4) == 4);
  CHECK(most_of(burst(0, {3, 0.5, 1.6, 0.4, 0.6}), 1, 2, 4) == 3);
  CHECK(most_of(burst(0, {0, 0, 0, 0, 0}), 1, 2, 4) == 5);
  CHECK(most_of(burst(0, {2.1, 2.2}), 1, 2, 1) == 0);
}

TEST_CASE("idle time between bursts helps nobody, and a job that reaches beyond a window counts") {
  auto two = burst(0, {1, 1, 1, 1, 1});
  const auto later = burst(100, {1, 1, 1, 1, 1});
  two.insert(two.end(), later.begin(), later.end());
  CHECK(most_of(two, 1, 102, 51) == 4);
  CHECK(most_of(two, 1, 102, 1) == 10);  // one window has time for all
  // Without a deadline that ends on the grid nothing is known of it.
  CHECK(most_of({{0, 5, 1}, {0, 5, 1}}, 0.1, 4, 4) == 2);
}

TEST_CASE("the scarcest resource counts, in every window another one") {
  const std::vector<double> arrivals{0, 0, 10, 10};
  const std::vector<timed_work> first{{0, 2, 1}, {0, 2, 2}, {10, 12, 0}, {10, 12, 0}},
      second{{0, 2, 0}, {0, 2, 0}, {10, 12, 2}, {10, 12, 2}};
  window_bound bound{arrivals, 12, 6};
  bound.limit_by(first, 1);
  CHECK(bound.most() == 3);
  bound.limit_by(second, 1);
  CHECK(bound.most() == 2);
}

TEST_CASE("the bound is all requests of a cluster that carries them, and what fits beyond that") {
  auto o = a800_cluster(1, 1);
  o.ttft_slo_s = 10;
  const cost_model costs{o.hardware};
  const auto full = static_cast<std::int64_t>(1e3 * costs.prefill(16'384, 0));  // a whole step each
  const auto light = even_prompts(200, full + 50, 16'384, 1);
  CHECK(run(o, light).all().slo_met == 200);
  CHECK(clairvoyant_bound(o, light) == 200);
  // Twice as many: half of them, and those that are under way in the first and last SLO.
  const auto heavy = even_prompts(400, full / 2, 16'384, 1);
  o.admission = admission_policy::queue;
  const auto bound = clairvoyant_bound(o, heavy);
  CHECK(bound >= run(o, heavy).all().slo_met);
  CHECK(bound <= 200 + static_cast<std::uint64_t>(1e3 * o.ttft_slo_s / static_cast<double>(full)) + 2);
  // The same prompt over and over is computed once.
  auto same = heavy;
  for (auto& r : same) r.hash_ids = heavy.front().hash_ids;
  CHECK(clairvoyant_bound(o, same) == 400);
}

TEST_CASE("decode binds by its TBT SLO, its batch or its memory") {
  auto o = a800_cluster(8, 1);
  o.ttft_slo_s = 5;
  o.max_tokens = 1000;
  const auto records = even_prompts(2000, 100, 1024, 500);
  const auto free = clairvoyant_bound(o, records);
  CHECK(free > 1500);
  o.hardware.max_batch = 20;  // 20 of 500 tokens take 15 s or more
  const auto few = clairvoyant_bound(o, records);
  CHECK(few < 20 * 255 / 14);
  CHECK(few >= run(o, records).all().slo_met);
  o.hardware.max_batch = 256;
  o.hardware.device_kv_tokens = 20 * 2024;
  CHECK(clairvoyant_bound(o, records) < 20 * 255 / 14);
  o.hardware.device_kv_tokens = 2000;  // less than an answer may get long
  CHECK(clairvoyant_bound(o, records) == 0);
  o.hardware.device_kv_tokens = 1'000'000;
  o.tbt_slo_s = o.hardware.costs.decode_constant_s + 3 * o.hardware.costs.decode_sequence_s;
  const auto tight = clairvoyant_bound(o, records);
  CHECK(tight < 3 * 255 / 12);
  o.admission = admission_policy::queue;
  CHECK(tight >= run(o, records).all().slo_met);
}

TEST_CASE("no policy gets beyond the bound, on workloads and clusters drawn at random") {
  for (std::uint64_t number = 5101; number <= 5112; ++number) {
    std::string changes;
    auto m = member_of_wide_family(number, 400, changes);
    for (const bool noise : {false, true}) {
      auto o = m.options;
      if (!noise) o.jitter = 0;
      const auto bound = clairvoyant_bound(o, m.records);
      CHECK(bound <= m.records.size());
      for (const auto a : all_values<admission_policy>()) {
        if (a == admission_policy::adaptive) continue;  // one of the others at any time
        o.admission = a;
        const auto met = run(o, m.records).all().slo_met;
        INFO(number, ": ", changes, m.text(), noise ? ", noise" : "", ": ", to_string(a), " ", met,
             ", bound ", bound);
        CHECK(static_cast<double>(met) <= (noise ? 1.02 : 1) * static_cast<double>(bound));
      }
    }
  }
}
