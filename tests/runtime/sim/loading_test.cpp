#include <doctest/doctest.h>

#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// Prompts of which all begin with the same blocks: the first `early` come `apart_ms` after one another, the
/// others `then_ms`.
std::vector<workload_record> one_beginning(std::uint32_t requests, std::uint64_t shared, std::uint64_t blocks,
                                           std::uint32_t early, std::uint64_t apart_ms,
                                           std::uint64_t then_ms) {
  std::vector<workload_record> out;
  for (std::uint32_t i = 0; i < requests; ++i) {
    workload_record r;
    r.timestamp_ms = i < early ? apart_ms * i : apart_ms * early + then_ms * (i - early);
    r.input_tokens = static_cast<std::uint32_t>(512 * blocks);
    r.output_tokens = 50;
    for (std::uint64_t b = 0; b < blocks; ++b) r.hash_ids.push_back(b < shared ? b : 1000 + 40 * i + b);
    out.push_back(std::move(r));
  }
  return out;
}

/// More prefixes than memory holds, on a disk behind it.
simulation_options with_disk(double bytes_per_s) {
  auto o = a800_cluster(2, 2);
  o.hardware.dram_tokens = 100'000;
  o.hardware.ssd_tokens = 5'000'000;
  o.hardware.ssd_bytes_per_s = bytes_per_s;
  o.speed = 0.2;
  return o;
}

}  // namespace

TEST_CASE("a system prompt is copied to the nodes that will need it, and the first token comes sooner") {
  const auto records = one_beginning(300, 16, 20, 30, 1000, 125);
  auto o = a800_cluster(8, 8);
  o.policy = placement_policy::cache_aware;
  const auto with = run(o, records);
  o.hot_copy_share = 0;
  const auto without = run(o, records);
  CHECK(with.hot_copies >= 16);
  CHECK(with.hot_copies <= 7 * 20);  // once to each of the others; nothing else is hot
  CHECK(without.hot_copies == 0);
  CHECK(with.ttft.mean() < without.ttft.mean());
  CHECK(with.computed_tokens < without.computed_tokens);
}

TEST_CASE("a prefix on disk is read where that beats computing it, and one below the threshold never") {
  const auto records = conversation_like(1500);
  CHECK(run(with_disk(6e9), records).blocks_ssd > 1000);
  CHECK(run(with_disk(0.05e9), records).blocks_ssd == 0);
  auto o = with_disk(6e9);
  o.prefetch.threshold_tokens = 1 << 24;
  const auto none = run(o, records);
  CHECK(none.blocks_ssd == 0);
  // A block takes six times as long to read as to compute: a few pass beside long computations.
  const auto slow = run(with_disk(0.5e9), records);
  CHECK(slow.blocks_ssd < 100);
  CHECK(slow.ttft.mean() <= none.ttft.mean());
  CHECK(none.fetches == 0);
  CHECK(none.blocks_dram > 0);
}

TEST_CASE("a prefix on disk comes in by layers beside the computation: the longer of both, not their sum") {
  // Two long prompts by turns, of which memory holds one. 32 blocks of 168 MB take 1.34 s at 4 GB/s; the 8
  // behind them take some 0.7 s to compute, all 40 over 2.6 s.
  auto records = one_beginning(8, 0, 40, 8, 60'000, 0);
  for (std::size_t i = 0; i < records.size(); ++i)
    for (std::uint64_t b = 0; b < 32; ++b) records[i].hash_ids[b] = 100'000 * (i % 2) + b;
  auto o = a800_cluster(1, 1);
  o.hardware.dram_tokens = 41 * 512;
  o.hardware.ssd_tokens = 5'000'000;
  o.hardware.ssd_bytes_per_s = 4e9;
  o.prefetch.mode = prefetch_mode::wait_complete;
  const auto beside = run(o, records);
  REQUIRE(beside.blocks_ssd > 0);
  o.layerwise = false;
  const auto before = run(o, records);
  REQUIRE(before.blocks_ssd == beside.blocks_ssd);
  const double loads = static_cast<double>(beside.blocks_ssd) / 32, each = 32 * 167.8e6 / 4e9;
  const double saved =
      (before.ttft.mean() - beside.ttft.mean()) * static_cast<double>(records.size()) / loads;
  INFO("each load of ", each, " s is ", saved, " s shorter");
  const cost_model costs{o.hardware};
  const double pass = costs.prefill(40 * 512, 32 * 512), parts = o.hardware.disk_parts();
  // The pass begins as a part lands, and so may be late by one.
  const double most = std::min(each, pass) * (parts - 1) / parts;
  CHECK(saved <= most + 0.03);
  CHECK(saved >= most - each / parts - 0.03);
}

namespace {

/// 32 blocks of 168 MB take 1.34 s at 4 GB/s; computing them takes 2.
simulation_options slow_network(prefetch_mode mode) {
  auto o = a800_cluster(4, 4);
  o.hardware.nic_bytes_per_s = 4e9;
  o.balancing_threshold = 1.5;
  o.hot_copy_share = 0;
  o.prefetch.mode = mode;
  return o;
}

}  // namespace

TEST_CASE("a prefix is waited for as long as the policy says, and what came until then is used") {
  // Twenty beginnings: those of one come far enough apart that the one before is computed.
  auto records = one_beginning(200, 32, 36, 4, 4000, 150);
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (std::uint64_t b = 0; b < 32; ++b) records[i].hash_ids[b] = 1'000'000 + 1000 * (i * 19 % 20) + b;
    records[i].output_tokens = 1;  // no hand-over is in a fetch's way
  }
  const auto whole = run(slow_network(prefetch_mode::wait_complete), records);
  REQUIRE(whole.fetches > 1);
  CHECK(whole.blocks_remote % 32 == 0);

  auto o = slow_network(prefetch_mode::timeout);
  o.prefetch.base = std::chrono::milliseconds(500);
  o.prefetch.per_1024_tokens = duration{0};
  const auto cut = run(o, records);
  // In half a second come 12 of the 32 at most.
  REQUIRE(cut.fetches > 0);
  CHECK(cut.blocks_remote > 0);
  CHECK(cut.blocks_remote <= cut.fetches * 12);
  CHECK(cut.bytes_fetched < whole.bytes_fetched);
  o.prefetch.base = std::chrono::hours(1);
  const auto patient = run(o, records);
  CHECK(patient.ttft.mean() == whole.ttft.mean());

  // An idle device computes at once; a busy one's requests use the time that they wait anyway.
  const auto best = run(slow_network(prefetch_mode::best_effort), records);
  CHECK(best.fetches <= whole.fetches);
  CHECK(best.all().completed == records.size());
  auto idle = one_beginning(4, 32, 36, 4, 4000, 200);
  for (auto& r : idle) r.output_tokens = 1;
  CHECK(run(slow_network(prefetch_mode::best_effort), idle).blocks_remote == 0);
}

TEST_CASE("a slow link is found out by using it, and its nodes send fewer prefixes from then on") {
  const auto records = conversation_like(1500);
  auto o = a800_cluster(4, 4);
  o.hot_copy_share = 0;
  const auto all_well = run(o, records);
  REQUIRE(all_well.fetches > 40);
  disturbance d;
  d.kind = disturbance_kind::link;
  d.last = 3;
  d.factor = 0.01;
  d.for_s = 1000;
  o.disturbances.push_back(d);
  const auto slow = run(o, records);
  CHECK(slow.all().completed == records.size());
  CHECK(slow.fetches < all_well.fetches);
  CHECK(slow.computed_tokens > all_well.computed_tokens);
}

TEST_CASE("a prefix that several nodes hold comes from all of them at once") {
  // The first prompt is computed once, or by each of three nodes; their links are slow ever after. Then it
  // comes again until a node gets it that does not hold it.
  const auto last_ttft = [](std::uint32_t holders) {
    auto records = one_beginning(2 * holders + 1, 32, 36, holders, 0, 0);
    for (auto& r : records) r.output_tokens = 1;  // no hand-over shows how slow the links are
    for (std::uint32_t i = holders; i < records.size(); ++i) records[i].timestamp_ms = 100'000;
    auto o = a800_cluster(holders + 1, 2);
    o.hot_copy_share = 0;
    o.balancing_threshold = 1.5;
    o.prefetch.mode = prefetch_mode::wait_complete;
    disturbance d;
    d.kind = disturbance_kind::link;
    d.last = holders - 1;
    d.factor = 0.04;
    d.for_s = 1000;
    o.disturbances.push_back(d);
    const auto all = run(o, records);
    REQUIRE(all.fetches == 1);
    CHECK(all.fetches_shared == (holders > 1 ? 1 : 0));
    CHECK(all.blocks_remote == 32);
    const auto sum_of = [](const outcome& out, std::size_t requests) {
      return out.ttft.mean() * static_cast<double>(requests);
    };
    const auto size = records.size();
    records.pop_back();
    return sum_of(all, size) - sum_of(run(o, records), size - 1);
  };
  CHECK(last_ttft(3) < 0.7 * last_ttft(1));
}

TEST_CASE("of prompts that come at once and begin alike an instance computes the beginning once") {
  const auto o = a800_cluster(1, 1);
  const auto all = run(o, one_beginning(8, 32, 36, 0, 0, 1));
  CHECK(all.all().completed == 8);
  CHECK(all.computed_tokens == (32 + 8 * 4) * 512);
  // A beginning of less than a block's worth is not waited for.
  CHECK(run(o, one_beginning(8, 0, 36, 0, 0, 1)).computed_tokens == 8 * 36 * 512);
}
