#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/sim/node_cache.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

TEST_CASE("the more a policy knows about caches, the sooner the first token comes") {
  const auto records = conversation_like(6000);
  const auto mean_ttft = [&](placement_policy policy) {
    auto o = a800_cluster(8, 8);
    o.policy = policy;
    o.speed = 1.3;
    return run(o, records).ttft.mean();
  };
  const double centric = mean_ttft(placement_policy::kvcache_centric);
  const double aware = mean_ttft(placement_policy::cache_aware);
  const double balanced = mean_ttft(placement_policy::load_balancing);
  const double any = mean_ttft(placement_policy::random);
  CHECK(centric < aware);
  CHECK(aware < balanced);
  CHECK(balanced < any);
}

TEST_CASE("a threshold that no prefix exceeds makes the KVCache-centric policy the cache-aware one") {
  const auto records = conversation_like(2000);
  auto o = a800_cluster(8, 8);
  o.balancing_threshold = std::numeric_limits<double>::infinity();
  const auto centric = run(o, records);
  o.policy = placement_policy::cache_aware;
  const auto aware = run(o, records);
  CHECK(centric.ttft.mean() == aware.ttft.mean());
  CHECK(centric.hit_share() == aware.hit_share());
  CHECK(centric.fetches == 0);
}

TEST_CASE("pricing serves more requests inside their SLOs than the paper's three at every overload") {
  for (const std::uint64_t seed : {1, 2}) {
    const auto records = conversation_like(4000, seed);
    auto o = a800_cluster(8, 8);
    const double load = 1 / run(o, records).prefill_busy;
    for (const double overload : {1.2, 2.0, 3.0}) {
      o.speed = overload * load;
      const auto met = [&](admission_policy admission) {
        o.admission = admission;
        return run(o, records).all().slo_met;
      };
      const auto best = std::max({met(admission_policy::baseline), met(admission_policy::early),
                                  met(admission_policy::early_running), met(admission_policy::predictive)});
      INFO("seed ", seed, ", overload ", overload);
      CHECK(met(admission_policy::priced) > best);
    }
  }
}

TEST_CASE("a laxer TBT SLO never lowers goodput, though decode's memory is what runs out then") {
  const auto records = conversation_like(3000);
  for (const auto admission : {admission_policy::early, admission_policy::early_running,
                               admission_policy::per_request, admission_policy::priced}) {
    auto o = a800_cluster(12, 2);
    o.speed = 2.6;
    o.admission = admission;
    std::uint64_t before = 0;
    for (const double slo : {0.06, 0.1, 0.12, 0.2, 0.5}) {
      o.tbt_slo_s = slo;
      const auto c = run(o, records).all();
      INFO(to_string(admission), ", TBT SLO ", slo, " s");
      CHECK(static_cast<double>(c.slo_met) >= 0.97 * static_cast<double>(before));
      before = std::max(before, c.slo_met);
    }
    CHECK(before > 2000);
  }
}

TEST_CASE(
    "a queue serves everybody whose SLO allows it, and beyond its length refuses at once instead of keeping "
    "all waiting") {
  const auto records = conversation_like(4000);
  auto o = a800_cluster(8, 8);
  o.speed = 1.5 / run(o, records).prefill_busy;
  const auto unbounded = run(o, records);
  o.admission = admission_policy::queue;
  o.max_queued = 1'000'000;
  const auto in_time = run(o, records);
  CHECK(in_time.all().completed + in_time.all().rejected_placement == records.size());
  o.ttft_slo_s = 3600;  // as long as clients would wait
  const auto patient = run(o, records);
  CHECK(patient.all().completed == records.size());
  // Who is placed late is placed where the prefix is by then.
  CHECK(patient.ttft.mean() < 1.05 * unbounded.ttft.mean());
  o.max_queued = 20;
  const auto bounded = run(o, records);
  const auto all = bounded.all();
  CHECK(all.rejected_placement > 0);
  CHECK(all.completed + all.rejected_placement == records.size());
  CHECK(bounded.ttft.mean() < patient.ttft.mean() / 2);
}

TEST_CASE("a pipeline group speeds up a long prompt and costs a short one nothing but hops") {
  const auto alone = [](std::uint32_t prompt, std::uint32_t stages) {
    auto o = a800_cluster(1, 1);
    o.pipeline = stages;
    o.hardware.chunk_tokens = 4096;
    workload_record r;
    r.input_tokens = prompt;
    r.output_tokens = 2;
    for (std::uint32_t b = 0; b < (prompt + 511) / 512; ++b) r.hash_ids.push_back(b);
    return run(o, {r}).ttft.mean();
  };
  const double one = alone(131'072, 1);
  CHECK(alone(131'072, 2) < 0.6 * one);
  CHECK(alone(131'072, 4) < 0.35 * one);
  CHECK(alone(2048, 4) == doctest::Approx(alone(2048, 1)).epsilon(0.02));
}

TEST_CASE("prefill and decode on one machine slow each other while both compute, and only then") {
  workload_record first, second;
  first.input_tokens = 8000;
  first.output_tokens = 400;  // some ten seconds of decoding
  second.timestamp_ms = 3000;
  second.input_tokens = 32'000;  // some five seconds of prefill, in chunks
  second.output_tokens = 2;
  for (std::uint64_t b = 0; b < 16; ++b) first.hash_ids.push_back(b);
  for (std::uint64_t b = 0; b < 63; ++b) second.hash_ids.push_back(100 + b);
  auto apart = a800_cluster(1, 1);
  apart.hardware.chunk_tokens = 2048;
  auto shared = apart;
  shared.hardware.costs.prefill_beside_decode = 1.5;
  shared.hardware.costs.decode_beside_prefill = 2;
  const auto alone = run(apart, {first}), still_alone = run(shared, {first});
  CHECK(alone.ttft.mean() == still_alone.ttft.mean());
  CHECK(alone.gap.mean() == doctest::Approx(still_alone.gap.mean()));
  const auto both = run(apart, {first, second}), together = run(shared, {first, second});
  const auto later = [](const outcome& o) { return o.ttft.count() * o.ttft.mean(); };
  const double own = later(both) - alone.ttft.mean();
  CHECK(later(together) - alone.ttft.mean() == doctest::Approx(1.5 * own).epsilon(0.02));
  // All gaps of the first request while the second is in prefill are twice as long: as many seconds more as
  // that prefill has half of.
  const auto decoding = [](const outcome& o) { return static_cast<double>(o.gap.count()) * o.gap.mean(); };
  CHECK(decoding(together) - decoding(both) == doctest::Approx(0.75 * own).epsilon(0.1));
}

TEST_CASE("layer-wise transfer takes the hand-over off the critical path") {
  const auto records = conversation_like(2000);
  auto o = a800_cluster(8, 8);
  o.hardware.nic_bytes_per_s = 12.5e9;
  const auto beside = run(o, records);
  o.layerwise = false;
  const auto after = run(o, records);
  CHECK(beside.handover.mean() < 0.5 * after.handover.mean());
  CHECK(beside.ttft.mean() < after.ttft.mean());
}

TEST_CASE("coupled instances stall decoding where prefill and decode apart do not") {
  const auto records = conversation_like(2000);
  auto o = a800_cluster(8, 8);
  const auto apart = run(o, records);
  o.policy = placement_policy::cache_aware;
  for (const auto mode : {coupled_mode::one_by_one, coupled_mode::batched, coupled_mode::chunked}) {
    o.coupled = mode;
    const auto together = run(o, records);
    CHECK(together.all().completed == 2000);
    CHECK(together.tbt.quantile(0.9) > 2 * apart.tbt.quantile(0.9));
  }
}

TEST_CASE("coupled instances share the work: the router counts what each decodes, too") {
  workload_options w;
  w.requests = 3000;
  w.rate = 3.4;
  w.input_mean = 4000;
  w.output_mean = 300;
  const auto records = all_of(w);
  for (const auto mode : {coupled_mode::one_by_one, coupled_mode::batched, coupled_mode::chunked}) {
    auto o = a800_cluster(8, 8);
    o.coupled = mode;
    o.policy = placement_policy::cache_aware;
    const auto out = run(o, records);
    std::vector<double> busy(16);
    for (const auto& row : out.history.rows()) {
      for (std::size_t i = 0; i < busy.size(); ++i) busy[i] += row.busy[i];
    }
    const double least = std::ranges::min(busy);
    const double most = std::ranges::max(busy);
    INFO("mode ", static_cast<int>(mode), ": ", least, " to ", most);
    CHECK(most <= 2 * least);
  }
}

TEST_CASE("a coupled instance is asked about its own decoding and memory before it gets a prompt") {
  const auto records = conversation_like(1500);
  auto o = a800_cluster(1, 1);
  o.coupled = coupled_mode::chunked;
  o.admission = admission_policy::early;
  o.ttft_slo_s = 1000;
  o.tbt_slo_s = 10;
  o.hardware.device_kv_tokens = 60'000;
  const auto scarce = run(o, records).all();
  CHECK(scarce.rejected_memory > 300);
  CHECK(scarce.rejected_prefill + scarce.rejected_decode == 0);
  o.hardware.device_kv_tokens = 10'000'000;
  o.tbt_slo_s = 0.035;
  CHECK(run(o, records).all().rejected_decode > 300);
}

TEST_CASE("requests of high priority keep their goodput while the others make room") {
  const auto records = conversation_like(4000);
  auto o = a800_cluster(8, 8);
  o.admission = admission_policy::priced;
  o.high_share = 0.2;
  const auto share = [](const outcome& out) {
    const auto& high = out.by_priority[0];
    return static_cast<double>(high.slo_met) / static_cast<double>(high.arrived);
  };
  const auto unloaded = run(o, records);
  o.speed = 2 / (unloaded.prefill_busy * unloaded.span_s / unloaded.last_arrival_s);
  const auto loaded = run(o, records);
  CHECK(share(loaded) >= 0.99 * share(unloaded));
  CHECK(loaded.all().rejected() > 0);
}

TEST_CASE("what a tenant asks for beyond its share costs the others next to nothing") {
  auto o = a800_cluster(8, 8);
  o.admission = admission_policy::queue;
  const auto calm = conversation_like(4000);
  auto flooded = calm;
  for (std::size_t i = 0; i < calm.size(); ++i) {
    flooded[i].share.owner = 1 + i % 4;
    if (i % 4 != 0 || i < 1000 || i > 3000) continue;
    for (std::uint64_t copy = 1; copy <= 12; ++copy) {
      auto& more = flooded.emplace_back(flooded[i]);
      for (auto& id : more.hash_ids) id += copy << 40;
    }
  }
  std::ranges::stable_sort(flooded, {}, &workload_record::timestamp_ms);
  const auto unloaded = run(o, calm);
  o.speed = 0.7 / (unloaded.prefill_busy * unloaded.span_s / unloaded.last_arrival_s);
  const double before = run(o, calm).slo_share();
  const auto share = [](const request_counts& c) {
    return static_cast<double>(c.slo_met) / static_cast<double>(c.arrived);
  };
  const auto out = run(o, flooded);
  CHECK(share(out.by_tenant.at(1)) < 0.7);  // nobody has room for all of that
  for (std::uint64_t owner = 2; owner <= 4; ++owner) CHECK(share(out.by_tenant.at(owner)) >= 0.97 * before);
}

namespace {

/// Keys of a prompt of its own.
std::vector<block_key> prompt_keys(std::uint64_t session, std::size_t blocks) {
  std::vector<block_key> keys;
  for (std::size_t i = 0; i < blocks; ++i)
    keys.push_back(hash_text128(std::to_string(session) + "/" + std::to_string(i)));
  return keys;
}

}  // namespace

TEST_CASE("a full disk gives up what another node keeps before what nobody else has") {
  for (const bool knows : {false, true}) {
    CAPTURE(knows);
    conductor_core conductor{conductor_options{}};
    node_cache_options options;
    options.ssd.copy_age = knows ? 4 : 1;
    options.dram_blocks = 8;
    options.ssd_blocks = 24;
    std::vector<node_cache> nodes;
    for (const std::uint64_t id : {1, 2}) {
      REQUIRE(conductor.add_node(node_id{id}));
      nodes.emplace_back(options, conductor, node_id{id});
    }
    const auto single = prompt_keys(1, 8), doubled = prompt_keys(2, 8);
    std::uint64_t now = 0;
    nodes[0].insert(single, 0, ++now);
    for (auto& n : nodes) n.insert(doubled, 0, ++now);
    const auto found = [&](std::size_t n, const auto& keys) { return nodes[n].match(keys).blocks; };
    for (std::uint64_t other = 10; found(0, single) == 8 && found(0, doubled) + found(1, doubled) == 16;
         ++other) {
      REQUIRE(other < 100);
      for (auto& n : nodes) n.insert(prompt_keys(other, 1), 0, ++now);
    }
    CHECK(found(0, single) == (knows ? 8 : 7));
    CHECK(std::max(found(0, doubled), found(1, doubled)) == 8);  // never both
    CHECK(std::min(found(0, doubled), found(1, doubled)) == (knows ? 7 : 8));
  }
}

TEST_CASE("nodes that know what others keep find more, on disks that are too small") {
  const auto records = conversation_like(6000);
  auto o = a800_cluster(8, 8);
  o.hardware.dram_tokens = 100'000;
  o.hardware.ssd_tokens = 400'000;
  const auto hits = [&](std::uint32_t copy_age) {
    o.copy_age = copy_age;
    return run(o, records).hit_share();
  };
  CHECK(hits(4) > hits(1) + 0.005);
}
