#include <doctest/doctest.h>

#include <cmath>
#include <deque>

#include "runtime/sched/journal/worker_replay.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/report.hpp"
#include "tests/runtime/sim/world.hpp"
#include "tests/support/kept_journal.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

template <class Enum>
Enum any_of(random_source& random, Enum last) {
  return static_cast<Enum>(random.below(static_cast<std::uint64_t>(last) + 1));
}

simulation_options random_options(random_source& random) {
  auto o = a800_cluster(1 + static_cast<std::uint32_t>(random.below(6)),
                        1 + static_cast<std::uint32_t>(random.below(6)));
  o.hardware.chunk_tokens = 512u << random.below(6);
  o.hardware.max_batch = 1u << random.below(8);
  o.hardware.device_kv_tokens = 20'000u << random.below(6);
  o.hardware.dram_tokens = random.below(4) == 0 ? 0 : 50'000u << random.below(6);
  o.hardware.ssd_tokens = random.below(2) == 0 ? 0 : 100'000u << random.below(5);
  o.hardware.nic_bytes_per_s = 1e8 * static_cast<double>(1u << random.below(10));
  o.pipeline = 1u << random.below(3);
  o.coupled = any_of(random, coupled_mode::chunked);
  o.policy = any_of(random, placement_policy::kvcache_centric);
  o.admission = any_of(random, admission_policy::adaptive);
  o.eviction = any_of(random, eviction_policy::length_aware);
  o.write = any_of(random, write_policy::write_through_selective);
  o.leaf_first = random.below(2) == 0;
  o.layerwise = random.below(2) == 0;
  o.local_cache = random.below(5) != 0;
  o.speed = std::exp2(4 * random.uniform() - 1);
  o.jitter = random.below(2) == 0 ? 0 : 0.2;
  o.high_share = 0.2;
  o.low_share = 0.2;
  o.seed = random.bits();
  o.hot_copy_share = random.below(3) == 0 ? 0 : 0.02 * static_cast<double>(1 + random.below(20));
  o.prefetch.threshold_tokens = random.below(2) == 0 ? 256 : 4096;
  o.prefetch.mode = any_of(random, prefetch_mode::timeout);
  o.prefetch.base = std::chrono::milliseconds{random.below(3) * 50};
  o.prefetch.per_1024_tokens = std::chrono::milliseconds{1 + random.below(250)};
  o.hardware.device_link_bytes_per_s =
      random.below(2) == 0 ? 0 : 1e9 * static_cast<double>(1u << random.below(7));
  return o;
}

}  // namespace

TEST_CASE(
    "whatever is simulated, every request ends exactly once, no instance is busier than the clock, and every "
    "decision follows again") {
  std::deque<std::pair<std::string, std::string>> journals;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    random_source random{seed};
    workload_options w;
    w.kind = any_of(random, workload_kind::long_doc);
    w.requests = 250;
    w.burstiness = random.below(2) == 0 ? 0 : 10;
    w.seed = seed;
    auto records = all_of(w);
    for (auto& r : records) r.share.owner = random.below(4), r.share.weight = 1 + r.share.owner;
    auto options = random_options(random);
    REQUIRE(check_options(options));
    auto& [of_conductor, of_workers] = journals.emplace_back();
    options.journal = test::kept_in(of_conductor);
    options.worker_journal = test::kept_in(of_workers);
    simulation s{options};
    const auto out = s.run(*replay_of(records));
    REQUIRE(out);
    INFO("seed ", seed, ": ", describe(options));
    const auto c = out->all();
    CHECK(c.arrived == 250);
    CHECK(c.completed + c.rejected() == c.arrived);
    CHECK(c.slo_met <= c.completed);
    CHECK(out->by_tenant.size() == 3);
    for (const auto& [owner, own] : out->by_tenant) {
      CHECK(own.arrived == static_cast<std::uint64_t>(std::ranges::count(
                               records, owner, [](const workload_record& r) { return r.share.owner; })));
      CHECK(own.completed + own.rejected() == own.arrived);
    }
    // Memory refuses before prefill where it is foreseen, and after it where it is not.
    CHECK(c.completed + c.rejected_at_decode <= out->ttft.count());
    CHECK(out->ttft.count() <= c.completed + c.rejected_at_decode + c.rejected_memory);
    CHECK(out->busiest <= 1 + 1e-9);
    CHECK(out->prefill_busy <= 1 + 1e-9);
    CHECK(out->computed_tokens <= out->prompt_tokens);
    CHECK(s.conductor().charged_requests() == 0);
    CHECK(s.live_requests() == 0);
    if (!options.local_cache || options.hardware.dram_tokens == 0) CHECK(out->hit_share() == 0);
    if (options.policy != placement_policy::kvcache_centric) CHECK(out->fetches == 0);
  }
  // The journals end with the simulations: what was decided in each follows again from what was told.
  std::uint64_t requests = 0, by_workers = 0;
  for (const auto& [conductor, workers] : journals) {
    const auto again = journal::replay(conductor, "conductor");
    const auto worked = journal::replay_worker(workers, "workers");
    REQUIRE(again);
    REQUIRE(worked);
    CHECK(!again->first);
    CHECK(!worked->first);
    requests += again->requests;
    by_workers += worked->decisions;
  }
  CHECK(requests >= 60 * 250);
  CHECK(by_workers > 1000);
}

TEST_CASE("the same seed gives the same bytes") {
  const auto records = conversation_like(600);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    random_source random{seed};
    const auto options = random_options(random);
    const auto first = run(options, records), second = run(options, records);
    INFO("seed ", seed, ": ", describe(options));
    CHECK(to_json(options, first) == to_json(options, second));
    CHECK(to_html(options, first) == to_html(options, second));
  }
}

TEST_CASE("more hardware never worsens the mean TTFT beyond noise") {
  for (const std::uint64_t seed : {3, 4}) {
    const auto records = conversation_like(2500, seed);
    double before = 1e9;
    for (const std::uint32_t prefill : {4, 6, 8, 12, 16}) {
      const double now = run(a800_cluster(prefill, 8), records).ttft.mean();
      INFO("seed ", seed, ", ", prefill, " prefill instances");
      CHECK(now <= before * 1.03);
      before = now;
    }
    before = 1e9;
    for (const double nic : {2e9, 10e9, 50e9, 100e9}) {
      auto o = a800_cluster(8, 8);
      o.hardware.nic_bytes_per_s = nic;
      const double now = run(o, records).ttft.mean();
      INFO("seed ", seed, ", network ", nic);
      CHECK(now <= before * 1.03);
      before = now;
    }
    before = 1e9;
    for (const std::uint64_t cache : {100'000u, 1'000'000u, 10'000'000u}) {
      auto o = a800_cluster(8, 8);
      o.hardware.dram_tokens = cache;
      const double now = run(o, records).ttft.mean();
      INFO("seed ", seed, ", cache ", cache);
      CHECK(now <= before * 1.03);
      before = now;
    }
  }
}

TEST_CASE("memory follows what is live: a trace ten times as long needs no more request slots") {
  const auto records = conversation_like(1000);
  const auto once = run(a800_cluster(8, 8), records);
  auto source = replay_of(records, 10);
  const auto tenfold = simulation{a800_cluster(8, 8)}.run(*source);
  REQUIRE(tenfold);
  CHECK(tenfold->all().arrived == 10'000);
  CHECK(tenfold->peak_live < 2 * once.peak_live);
}

TEST_CASE(
    "a prompt of a billion tokens and a year without a request cost time on the virtual clock, not memory") {
  std::vector<workload_record> records(3);
  records[0].input_tokens = records[1].input_tokens = 1000;
  records[1].timestamp_ms = 365ll * 86'400 * 1000;
  records[2].timestamp_ms = records[1].timestamp_ms + 1;
  records[2].input_tokens = 1'000'000'000;
  for (auto& r : records) r.output_tokens = 3;
  auto o = a800_cluster(1, 1);
  o.hardware.device_kv_tokens = 2'000'000'000;
  const auto out = run(o, records);
  CHECK(out.all().completed == 3);
  CHECK(out.history.rows().size() < 1000);
}
