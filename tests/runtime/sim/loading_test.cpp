#include <doctest/doctest.h>

#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// Prompts of 20 blocks, the first 16 of which all of them share: one a second for half a minute, then eight.
std::vector<workload_record> one_system_prompt(std::uint32_t requests) {
  std::vector<workload_record> out;
  for (std::uint32_t i = 0; i < requests; ++i) {
    workload_record r;
    r.timestamp_ms = i < 30 ? 1000 * i : 30'000 + 125 * (i - 30);
    r.input_tokens = 20 * 512;
    r.output_tokens = 50;
    for (std::uint64_t b = 0; b < 20; ++b) r.hash_ids.push_back(b < 16 ? b : 1000 + 20 * i + b);
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
  const auto records = one_system_prompt(300);
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
  CHECK(run(with_disk(0.5e9), records).blocks_ssd == 0);
  auto o = with_disk(6e9);
  o.prefetch_threshold = 1 << 24;
  const auto none = run(o, records);
  CHECK(none.blocks_ssd == 0);
  CHECK(none.fetches == 0);
  CHECK(none.blocks_dram > 0);
}
