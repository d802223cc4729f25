#include "runtime/sched/policy.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <set>

#include "tests/runtime/sched/brute_force.hpp"
#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("an idle cluster serves a new prompt on the first instance, computing all of it") {
  auto core = small_cluster(small_options());
  const auto keys = chain(1, 10);
  const auto p = core.schedule(request_of(1, keys, 1050), start);
  REQUIRE(p.has_value());
  CHECK(p->prefill == worker_id{1});
  CHECK(p->local_blocks == 0);
  CHECK(!p->source);
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(1.05));
}

TEST_CASE("a request goes where its prefix is") {
  auto core = small_cluster(small_options());
  const auto keys = chain(1, 10);
  hold(core, 3, keys);
  const auto p = core.schedule(request_of(1, keys, 1050), start);
  CHECK(p->prefill == worker_id{3});
  CHECK(p->local_blocks == 10);
  CHECK(!p->source);
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(0.05));
}

TEST_CASE("the block of the last token is computed even if it is cached") {
  auto core = small_cluster(small_options());
  const auto keys = chain(1, 10);
  hold(core, 2, keys);
  const auto p = core.schedule(request_of(1, keys, 1000), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(p->local_blocks == 9);
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(0.1));
}

TEST_CASE("when the holder is busy, its prefix is fetched by an idle instance") {
  auto core = small_cluster(small_options());
  const auto keys = chain(1, 10);
  hold(core, 1, keys);
  REQUIRE(core.schedule(request_of(1, chain(9, 50), 5000), start).has_value());  // 5 s on instance 1
  const auto p = core.schedule(request_of(2, keys, 1050), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(p->source == node_id{1});
  CHECK(p->source_blocks == 10);
  CHECK(p->local_blocks == 0);
  CHECK(p->replicate);
  // 1 ms latency, 1 MB at 1 GB/s behind the first 16th of what the holder hands over meanwhile, 50 tokens.
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(0.001 + 0.001 + 0.005 / 16 + 0.05));
}

TEST_CASE("a remote prefix that is not much longer than the local one is not fetched") {
  // Node 2 has 4 of 10 blocks, node 1 has all: 10 / 4 = 2.5.
  const auto keys = chain(1, 10);
  const auto source_at = [&](double threshold) {
    auto options = small_options();
    options.balancing_threshold = threshold;
    auto core = small_cluster(options, 2);
    hold(core, 1, keys);
    hold(core, 2, std::span{keys}.first(4));
    REQUIRE(core.schedule(request_of(1, chain(9, 50), 5000), start)->prefill == worker_id{1});
    const auto p = core.schedule(request_of(2, keys, 1050), start);
    CHECK(p->prefill == worker_id{2});
    CHECK(p->local_blocks == 4);
    return p->source;
  };
  CHECK(source_at(2.4) == node_id{1});
  CHECK(source_at(2.5) == node_id{});
  CHECK(source_at(std::numeric_limits<double>::infinity()) == node_id{});
}

TEST_CASE("a fetch that takes longer than computing is not made") {
  auto options = small_options();
  options.transfer.bytes_per_s = 1e5;  // 1 s a block, where computing one takes 0.1 s
  auto core = small_cluster(options, 2);
  const auto keys = chain(1, 10);
  hold(core, 1, keys);
  REQUIRE(core.schedule(request_of(1, chain(9, 50), 5000), start).has_value());
  const auto p = core.schedule(request_of(2, keys, 1050), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(!p->source);
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(1.05));
}

TEST_CASE("of two holders the one that sends less is asked") {
  auto options = small_options();
  options.transfer.bytes_per_s = 1e7;  // 10 ms a block
  auto core = small_cluster(options, 4);
  const auto keys = chain(1, 50);
  hold(core, 1, keys);
  hold(core, 2, keys);
  for (const std::uint64_t id : {1, 2}) {
    REQUIRE(core.schedule(request_of(id, chain(10 + id, 200), 20'000), start)->prefill == worker_id{id});
  }
  const auto a = core.schedule(request_of(3, keys, 5050), start);
  CHECK(a->source == node_id{1});
  const auto b = core.schedule(request_of(4, keys, 5050), start);
  CHECK(b->prefill != a->prefill);
  CHECK(b->source == node_id{2});
}

TEST_CASE("a long prefix is fetched from all who have much of it, those that send the least first") {
  auto core = small_cluster(small_options(), 6, 2);
  const auto keys = chain(1, 60);  // 6 MB
  const auto fetched = [&](std::uint64_t id, std::span<const block_key> of) {
    return core.schedule(request_of(id, of, static_cast<std::uint32_t>(of.size()) * 100 + 50), start);
  };
  for (const std::uint64_t node : {1, 2, 1001}) hold(core, node, keys);
  hold(core, 3, std::span{keys}.first(40));
  hold(core, 4, std::span{keys}.first(20));  // less than half
  hold(core, 1002, std::span{keys}.first(20));
  hold(core, 1002, std::span{keys}.subspan(20), storage_tier::ssd);  // less than half in memory
  // All who hold some of it have 50 s to do.
  for (const std::uint64_t id : {1, 2, 3, 4})
    REQUIRE(core.schedule(request_of(id, chain(10 + id, 500), 50'000), start)->prefill == worker_id{id});
  const auto p = fetched(10, keys);
  REQUIRE(p);
  CHECK(p->prefill == worker_id{5});
  const std::vector<prefix_holder> others = {{node_id{1}, 60}, {node_id{2}, 60}, {node_id{3}, 40}};
  REQUIRE(p->source == node_id{1001});
  CHECK(p->beside == others);

  SUBCASE("not over a broken link") {
    const std::vector<node_id> lost{node_id{2}};
    core.unreachable(node_id{6}, lost);
    const auto q = fetched(11, keys);
    REQUIRE(q->prefill == worker_id{6});
    CHECK(std::ranges::find(q->beside, node_id{2}, &prefix_holder::node) == q->beside.end());
    CHECK(!q->beside.empty());
  }
  SUBCASE("a short one comes from one node") {
    const auto q = fetched(11, std::span{keys}.first(30));
    REQUIRE(q->source);
    CHECK(q->beside.empty());
  }
}

TEST_CASE("blocks on the own disk count only as far as reading them pays") {
  const auto keys = chain(1, 10);
  const auto ttft_with_disk_at = [&](double ssd_bytes_per_s) {
    auto options = small_options();
    options.transfer.ssd_bytes_per_s = ssd_bytes_per_s;
    auto core = small_cluster(options, 1);
    hold(core, 1, keys, storage_tier::ssd);
    const auto p = core.schedule(request_of(1, keys, 1050), start);
    return std::pair{p->local_blocks, to_seconds(p->predicted_ttft)};
  };
  CHECK(ttft_with_disk_at(1e8).first == 10);
  CHECK(ttft_with_disk_at(1e8).second == doctest::Approx(0.01 + 0.05));
  CHECK(ttft_with_disk_at(1e5).first == 0);
  CHECK(ttft_with_disk_at(1e5).second == doctest::Approx(1.05));
}

TEST_CASE("a disk that was measured to be slow counts at its node alone") {
  const auto keys = chain(1, 10);
  auto core = small_cluster(small_options(), 2);
  hold(core, 1, keys, storage_tier::ssd);
  hold(core, 2, keys, storage_tier::ssd);
  core.disk_measured(node_id{1}, 1e5);
  const auto p = core.schedule(request_of(1, keys, 1050), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(p->local_blocks == 10);
}

TEST_CASE("a link that was measured to be slow keeps prompts from behind it, and fetches from it") {
  const auto keys = chain(1, 10);
  auto core = small_cluster(small_options(), 3);
  hold(core, 1, keys);
  // The holder is busy for long: somebody else has to fetch.
  REQUIRE(core.schedule(request_of(1, keys, 20'000), start)->prefill == worker_id{1});
  SUBCASE("to one of two: the other fetches") {
    core.link_measured(node_id{1}, node_id{2}, 1e5, 1ms);
    core.link_measured(node_id{1}, node_id{3}, 1e9, 1ms);
    const auto p = core.schedule(request_of(2, keys, 1050), start);
    CHECK(p->prefill == worker_id{3});
    CHECK(p->source == node_id{1});
  }
  SUBCASE("to both: it is computed") {
    core.link_measured(node_id{1}, node_id{2}, 1e5, 1ms);
    core.link_measured(node_id{3}, node_id{1}, 1e5, 1ms);
    CHECK(!core.schedule(request_of(2, keys, 1050), start)->source);
  }
  SUBCASE("to another: one that was not measured is taken to be as slow") {
    core.link_measured(node_id{1}, node_id{2}, 1e5, 1ms);
    CHECK(!core.schedule(request_of(2, keys, 1050), start)->source);
  }
}

TEST_CASE("load balancing ignores what is cached, cache awareness ignores what others hold") {
  const auto keys = chain(1, 10);
  auto options = small_options();
  options.policy = placement_policy::load_balancing;
  auto balanced = small_cluster(options, 2);
  hold(balanced, 2, keys);
  CHECK(balanced.schedule(request_of(1, keys, 1050), start)->prefill == worker_id{1});
  CHECK(balanced.schedule(request_of(2, keys, 1050), start)->prefill == worker_id{2});
  options.policy = placement_policy::cache_aware;
  auto aware = small_cluster(options, 2);
  hold(aware, 2, keys);
  REQUIRE(aware.schedule(request_of(1, keys, 1050), start)->prefill == worker_id{2});
  for (std::uint64_t id = 2; id < 40; ++id) CHECK(!aware.schedule(request_of(id, keys, 1050), start)->source);
}

TEST_CASE("random placement uses every instance and is repeatable") {
  auto options = small_options();
  options.policy = placement_policy::random;
  const auto run = [&] {
    auto core = small_cluster(options, 5);
    std::vector<worker_id> chosen;
    for (std::uint64_t id = 1; id <= 200; ++id)
      chosen.push_back(core.schedule(request_of(id, {}, 100), start)->prefill);
    return chosen;
  };
  const auto once = run();
  CHECK(std::set(once.begin(), once.end()).size() == 5);
  CHECK(once == run());
}

TEST_CASE("a faster instance is worth a longer queue") {
  auto core = small_cluster(small_options(), 1);
  REQUIRE(core.add_node(node_id{50}).has_value());
  REQUIRE(core.add_instance(prefill_instance(50, node_id{50}, 3e-4)).has_value());
  for (std::uint64_t id = 1; id <= 3; ++id) {  // 0.6, 1.2, 1.8 s against 2 s
    CHECK(core.schedule(request_of(id, {}, 2000), start)->prefill == worker_id{50});
  }
  CHECK(core.schedule(request_of(4, {}, 2000), start)->prefill == worker_id{1});  // 2.4 s against 2 s
}

namespace {

/// A cluster of random shape, state and traffic; every placement must be Algorithm 1's.
void hold_against_brute_force(std::uint64_t seed, placement_policy policy, std::size_t nodes, int requests) {
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::uint64_t n) { return random() % n; };
  auto options = small_options();
  options.policy = policy;
  options.balancing_threshold = 1 + static_cast<double>(below(40)) / 10;
  options.transfer.bytes_per_s = below(2) ? 1e9 : 2e6;
  options.transfer.ssd_bytes_per_s = below(2) ? 1e8 : 5e5;
  conductor_core core{options};
  plain_holdings holdings;
  std::uint64_t next_worker = 1;
  for (std::uint64_t n = 1; n <= nodes; ++n) {
    REQUIRE(core.add_node(node_id{n}).has_value());
    holdings[node_id{n}];
    for (auto i = below(3); i > 0; --i) {
      const double speed = below(3) == 0 ? 3e-3 : 1e-3;
      REQUIRE(core.add_instance(prefill_instance(next_worker++, node_id{n}, speed)).has_value());
    }
  }
  REQUIRE(core.add_instance(prefill_instance(next_worker++, node_id{1})).has_value());
  REQUIRE(core.add_instance(decode_instance(next_worker++, node_id{1}, 1'000'000)).has_value());
  auto now = start;
  std::vector<request_id> running;
  // A stem that all share, then sessions: crowds, lists and single holders in one state.
  const auto prompt = [&](std::uint64_t session, std::size_t length) {
    auto keys = chain(0, 3);
    const auto own = chain(1 + session, length);
    keys.insert(keys.end(), own.begin(), own.end());
    return keys;
  };
  for (int step = 0; step < requests; ++step) {
    now += duration{static_cast<std::int64_t>(below(400'000'000))};
    const auto keys = prompt(below(6), 1 + below(20));
    for (auto i = below(4); i > 0; --i) {
      const node_id node{1 + below(nodes)};
      const auto upto = below(keys.size() + 1);
      const auto dram = below(2) ? upto : below(upto + 1);
      for (std::size_t k = 0; k < upto; ++k) {
        const auto tier = k < dram ? storage_tier::dram : storage_tier::ssd;
        core.blocks_held(node, {&keys[k], 1}, tier);
        holdings[node][keys[k]] = tier;
      }
    }
    const auto request = request_of(static_cast<std::uint64_t>(step) + 1, keys,
                                    static_cast<std::uint32_t>(keys.size() * 100 + below(100)));
    const auto expected = algorithm_1(core, holdings, request, now);
    const auto got = core.schedule(request, now);
    REQUIRE(got.has_value());
    REQUIRE(got->predicted_ttft.count() == expected.ttft.count());
    REQUIRE(got->prefill == expected.prefill);
    REQUIRE(got->source_blocks == expected.source_blocks);
    running.push_back(request.id);
    if (below(3) == 0) {
      const auto at = below(running.size());
      core.first_token(running[at], 100, 0, duration{static_cast<std::int64_t>(below(300'000'000))}, now);
      if (below(2)) core.failed(running[at], now);
    }
    if (below(10) == 0) {
      const node_id one{1 + below(nodes)}, other{1 + below(nodes)};
      core.link_measured(one, other, below(2) ? 1e9 : 1e6, std::chrono::milliseconds(below(30)));
      core.disk_measured(one, below(2) ? 1e8 : 1e6);
    }
    if (below(100) == 0) {
      const node_id node{1 + below(nodes)};
      core.forget_blocks(node);
      holdings[node].clear();
    }
  }
}

}  // namespace

TEST_CASE("every placement is the one that looking at every instance finds") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    hold_against_brute_force(seed, placement_policy::kvcache_centric, 1 + seed * 3, 300);
    hold_against_brute_force(100 + seed, placement_policy::cache_aware, 1 + seed * 3, 150);
  }
  hold_against_brute_force(500, placement_policy::kvcache_centric, 400, 1500);
  hold_against_brute_force(501, placement_policy::cache_aware, 400, 700);
}

TEST_CASE("with an infinite threshold, KVCache-centric is cache-aware") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    auto centric = small_options();
    centric.balancing_threshold = std::numeric_limits<double>::infinity();
    auto aware = small_options();
    aware.policy = placement_policy::cache_aware;
    auto a = small_cluster(centric, 6);
    auto b = small_cluster(aware, 6);
    std::mt19937_64 random{seed};
    auto now = start;
    for (std::uint64_t id = 1; id <= 400; ++id) {
      now += duration{static_cast<std::int64_t>(random() % 500'000'000)};
      const auto keys = chain(random() % 8, 1 + random() % 12);
      const auto request = request_of(id, keys, static_cast<std::uint32_t>(keys.size() * 100 + 50));
      const auto pa = a.schedule(request, now);
      const auto pb = b.schedule(request, now);
      REQUIRE(pa->prefill == pb->prefill);
      REQUIRE(pa->predicted_ttft == pb->predicted_ttft);
      REQUIRE(!pa->source);
      hold(a, pa->prefill.value, keys);
      hold(b, pb->prefill.value, keys);
    }
  }
}

TEST_CASE("a policy of one's own takes the place of the built-in ones") {
  struct last_one final : prefill_selector {
    prefill_choice select(const selection_input& in) override {
      prefill_choice c;
      c.slot = *std::ranges::max_element(in.pool.live());
      return c;
    }
  };
  conductor_core core{small_options(), std::make_unique<last_one>()};
  REQUIRE(core.add_node(node_id{1}).has_value());
  for (const std::uint64_t id : {1, 2, 3})
    REQUIRE(core.add_instance(prefill_instance(id, node_id{1})).has_value());
  REQUIRE(core.add_instance(decode_instance(9, node_id{1})).has_value());
  CHECK(core.schedule(request_of(1, {}, 10), start)->prefill == worker_id{3});
}
