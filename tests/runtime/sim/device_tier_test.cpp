// A modelled device's own memory: what it holds is what a live device would hold, and what moves takes time
// beside computing.

#include "runtime/sim/device_tier.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "gpu/linked/linked_device.hpp"
#include "runtime/sim/modelled_pass.hpp"
#include "tests/runtime/model/model_fixture.hpp"
#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;
using testing::unwrap;

namespace {

constexpr std::uint32_t block_tokens = 16, longest = 160;

/// A sequence as a worker runs it: its tokens, their KV in the host's memory, and how far it is.
struct talk {
  std::vector<std::int32_t> ids;
  std::vector<block_key> keys;
  testing::kv_space kv;
  std::uint32_t at = 0;
};

/// One conversation of `turns` turns, alone: each prompt is the one before and one block more.
std::vector<workload_record> one_talk(std::uint32_t turns, std::uint32_t first_blocks) {
  std::vector<workload_record> out;
  for (std::uint32_t t = 0; t < turns; ++t) {
    workload_record r;
    r.timestamp_ms = std::uint64_t{t} * 1'000'000;
    r.input_tokens = 512 * (first_blocks + t) + 1;
    r.output_tokens = 1;
    for (std::uint64_t b = 0; b <= first_blocks + t; ++b) r.hash_ids.push_back(b);
    out.push_back(std::move(r));
  }
  return out;
}

simulation_options one_device(double link_bytes_per_s, std::uint64_t device_tokens) {
  auto o = a800_cluster(1, 1);
  o.hardware.device_link_bytes_per_s = link_bytes_per_s;
  o.decode_hardware = o.hardware;  // which has room for any answer
  o.hardware.device_kv_tokens = device_tokens;
  return o;
}

}  // namespace

TEST_CASE("a live device and a modelled one hold the same KV and move the same bytes, pass by pass") {
  std::uint64_t loaded = 0, hit = 0;
  for (const std::size_t blocks : {11, 24}) {
    const auto dev = unwrap(make_linked_device({}));
    const auto net = unwrap(model::dummy(
        *dev, unwrap(dummy_shape("dummy:layers=2,dim=64,heads=2,kv_heads=1,ffn=96,vocab=300,type=q4_1")), 1));
    runner_options options;
    options.layout = net->layout(block_tokens, kv_dtype::f16);
    options.max_logit_rows = 8;
    options.device_blocks =
        unwrap(device_kv::make(*dev, options.layout, blocks * options.layout.block_bytes(), longest));
    const auto runner = unwrap(model_runner::make(net, *dev, options));
    profile machine;
    machine.layers = options.layout.n_layers;
    machine.kv_bytes_per_token = options.layout.bytes_per_token();
    machine.block_tokens = block_tokens;
    machine.device_kv_tokens = blocks * block_tokens;
    machine.device_link_bytes_per_s = 1e9;
    device_tier modelled(machine);

    std::mt19937 random(static_cast<std::uint32_t>(blocks));
    const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
    const auto ids = testing::random_tokens(longest, 300, 5);
    std::map<std::uint64_t, talk> talks;
    std::uint64_t next_name = 1;
    for (int round = 0; round < 250; ++round) {
      if (talks.size() < 5) {  // all begin alike; the keys differ from a block on, as their ends would
        talk t{ids, {}, testing::kv_space(options.layout, longest), 0};
        const auto branch = below(3);
        for (std::uint32_t b = 0; b < longest / block_tokens; ++b)
          t.keys.push_back({b < 3 ? 0 : 1 + branch, b});
        t.at = below(2) * 32;  // a prefix that L2 has: whatever it holds, only who knows it counts here
        for (std::size_t b = 0; b < t.kv.blocks().size(); ++b)
          std::fill_n(t.kv.blocks()[b], options.layout.block_bytes(), std::byte{0});
        talks.emplace(next_name++, std::move(t));
      }
      std::vector<batch_item> items;
      std::vector<device_tier::item> same;
      for (auto& [name, t] : talks) {
        if (below(3) == 0) continue;
        const auto n = std::min(below(4) == 0 ? 1 + below(40) : 1, longest - t.at);
        items.push_back({std::span(t.ids).subspan(t.at, n), t.at, t.kv.blocks(), false, {}, 0, name, t.keys});
        same.push_back({name, t.keys, t.at, n, 0});
        t.at += n;
      }
      if (items.empty()) continue;
      REQUIRE(runner->forward(items, {}).has_value());
      modelled.pass(same, 0);
      const auto live = options.device_blocks->stats(), expected = modelled.stats();
      CAPTURE(round);
      REQUIRE(live.blocks == expected.blocks);
      REQUIRE(live.blocks_used == expected.blocks_used);
      REQUIRE(live.hit_tokens == expected.hit_tokens);
      REQUIRE(live.loaded_tokens == expected.loaded_tokens);
      REQUIRE(live.loaded_bytes == expected.loaded_bytes);
      REQUIRE(live.stored_bytes == expected.stored_bytes);
      std::erase_if(talks, [&](const auto& t) { return t.second.at == longest || below(20) == 0; });
    }
    loaded += options.device_blocks->stats().loaded_bytes;
    hit += options.device_blocks->stats().hit_tokens;
  }
  CHECK(loaded > 0);
  CHECK(hit > 0);
}

TEST_CASE("loading a prefix takes what it exceeds the computing beside it, and a layer") {
  // Two conversations in turn on a device that has room for one: every second turn finds its prefix in the
  // node's memory alone.
  auto records = one_talk(2, 20);
  auto other = one_talk(1, 21);
  for (auto& id : other[0].hash_ids) id += 1000;
  other[0].timestamp_ms = 500'000;
  records.insert(records.begin() + 1, other[0]);
  constexpr std::uint64_t room = 22 * 512;
  const auto free = run(one_device(0, room), records);
  const auto here = run(one_device(1e15, room), records);
  CHECK(free.device.blocks == 0);
  CHECK(here.device.hit_tokens == 0);
  CHECK(here.device.loaded_tokens == 20 * 512);
  CHECK(here.ttft.max() == doctest::Approx(free.ttft.max()).epsilon(0.01));
  const auto hardware = one_device(0, 1).hardware;
  const double bytes = 20.0 * static_cast<double>(hardware.block_bytes());
  for (const double bandwidth : {1e9, 5e9, 25e9, 100e9}) {
    CAPTURE(bandwidth);
    const auto out = run(one_device(bandwidth, room), records);
    const device_tier::item turn{1, {}, 20 * 512, 513, cost_model(hardware).chunk({20 * 512, 513, 20 * 512})};
    auto machine = hardware;
    machine.device_link_bytes_per_s = bandwidth;
    const double compute = turn.seconds + hardware.costs.prefill_constant_s, load = bytes / bandwidth;
    const double took = device_tier(machine).pass({&turn, 1}, hardware.costs.prefill_constant_s);
    CHECK(took >= std::max(load, compute));
    CHECK(took <= std::max(load, compute) + 2 * (load + compute) / hardware.layers);
    CHECK(out.ttft.quantile(0.01) == doctest::Approx(took).epsilon(0.03));
    CHECK(out.device.loaded_bytes == static_cast<std::uint64_t>(bytes));
    CHECK(out.device.stored_bytes == out.computed_tokens * hardware.kv_bytes_per_token);
  }
}

TEST_CASE("turns of one conversation find their prefix on the device while it fits, whatever the link") {
  const auto records = one_talk(10, 4);
  const auto large = run(one_device(1e6, 512 * 32), records);
  CHECK(large.device.loaded_bytes == 0);
  CHECK(large.device.hit_tokens == large.prompt_tokens - large.computed_tokens);
  // Prompts longer than the prefill device: all of their context crosses the link.
  const auto small = run(one_device(1e9, 512 * 6), records);
  CHECK(small.all().completed == 10);
  CHECK(small.device.hit_tokens < large.device.hit_tokens);
  CHECK(small.device.loaded_tokens + small.device.hit_tokens == large.device.hit_tokens);
}

TEST_CASE(
    "more memory on the device never finds less of a conversation trace, and a slower link never helps") {
  auto records = conversation_like(600);
  std::uint64_t hits = 0;
  for (const std::uint64_t tokens : {150'000, 600'000, 2'400'000}) {
    const auto out = run(one_device(25e9, tokens), records);
    CHECK(out.device.hit_tokens >= hits);
    CHECK(out.all().completed == 600);
    hits = out.device.hit_tokens;
  }
  CHECK(hits > 0);
  double before = 0;
  for (const double link : {100e9, 10e9, 2e9}) {
    const auto out = run(one_device(link, 600'000), records);
    CHECK(out.ttft.mean() > before);
    before = out.ttft.mean();
  }
}

TEST_CASE("an answer begins once its KV is on the decode device; coupled, it is there") {
  auto records = one_talk(1, 20);
  records[0].output_tokens = 3;
  auto o = one_device(1e9, 100'000);
  const auto split = run(o, records);
  const double load = 21.0 * static_cast<double>(o.hardware.block_bytes()) / 1e9;
  CHECK(split.gap.max() >= load);
  o.decode_hardware.reset();
  o.coupled = coupled_mode::batched;
  CHECK(run(o, records).gap.max() < load / 10);
}

namespace {

/// Two nodes that do both, and the trace's conversations.
simulation_options coupled(write_policy policy, std::uint64_t device_tokens) {
  auto o = one_device(25e9, device_tokens);
  o.decode_hardware.reset();
  o.prefill = 2;
  o.decode = 0;
  o.coupled = coupled_mode::chunked;
  o.device_write = policy;
  return o;
}

}  // namespace

TEST_CASE("what stays on the device is found there by the next turn, and nothing is written while it fits") {
  auto records = one_talk(10, 4);
  for (auto& r : records) r.output_tokens = 20;
  const auto through = run(coupled(write_policy::write_through, 512 * 64), records);
  const auto back = run(coupled(write_policy::write_back, 512 * 64), records);
  CHECK(through.device.stored_bytes > 0);
  CHECK(back.device.stored_bytes == 0);
  CHECK(back.hit_share() == through.hit_share());
  CHECK(back.computed_tokens == through.computed_tokens);  // so every turn went where the others were
  CHECK(back.device.unwritten_blocks == 4 + 9);
  CHECK(back.device.loaded_bytes == 0);
  // A prefix that three requests used is written once; what they add is not, until it is used as often.
  auto often = coupled(write_policy::write_through_selective, 512 * 64);
  often.selective_hits = 3;
  const auto selective = run(often, records);
  CHECK(selective.hit_share() == through.hit_share());
  CHECK(selective.device.stored_bytes > 0);
  CHECK(selective.device.stored_bytes < through.device.stored_bytes);
}

TEST_CASE("a device that is too small writes what leaves it, once, but for what a burst needs at once") {
  const auto records = conversation_like(800);
  const auto through = run(coupled(write_policy::write_through, 400'000), records);
  const auto back = run(coupled(write_policy::write_back, 400'000), records);
  CHECK(back.all().completed == 800);
  CHECK(back.device.stored_bytes > 0);
  CHECK(back.device.stored_bytes < through.device.stored_bytes);
  const auto block_bytes = coupled(write_policy::write_back, 1).hardware.block_bytes();
  CHECK(back.device.lost_blocks < back.device.stored_bytes / block_bytes / 45);
  CHECK(back.hit_share() == doctest::Approx(through.hit_share()).epsilon(0.02));
  CHECK(back.device.loaded_bytes > 0);
}

TEST_CASE("nodes that die with what their devices alone had leave nothing behind that anybody waits for") {
  const auto records = conversation_like(600);
  for (const auto policy : {write_policy::write_back, write_policy::write_through_selective}) {
    auto o = coupled(policy, 400'000);
    o.disturbances = unwrap(parse_disturbances("20s 1h fail node 0 mtbf 40s mttr 10s unseen 5s", "d"));
    const auto out = run(o, records);
    CHECK(out.all().completed + out.all().rejected() == 600);
    CHECK(out.all().completed > 500);
  }
}

TEST_CASE("a live modelled device takes the time of its profile's link") {
  profile machine = one_device(1e9, 100'000).hardware;
  machine.block_tokens = 16;
  time_point now{};
  modelled_pass pass({machine, worker_role::prefill, 1.0},
                     {[&] { return now; }, [&](time_point t) { now = t; }});
  const testing::kv_space kv(pass.layout(), 4096);
  const std::vector<std::int32_t> tokens(64, 70);
  const auto took = [&](std::uint32_t start, std::uint64_t sequence) {
    now += std::chrono::seconds(100);
    const auto began = now;
    const batch_item item{tokens, start, kv.blocks(), false, {}, 0, sequence};
    REQUIRE(pass.forward({&item, 1}, {}).has_value());
    return to_seconds(now - began);
  };
  for (std::uint32_t at = 0; at < 2048; at += 64) took(at, 7);
  const double there = took(2048, 7), loaded = took(2112, 8);
  const double load = 2112.0 * static_cast<double>(machine.kv_bytes_per_token) / 1e9;
  CHECK(there < load);
  CHECK(loaded >= load);
  CHECK(loaded < there + load);
}
