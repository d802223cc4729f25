// Placement around broken links, and silence that is nobody's fault.

#include "runtime/sched/broken_links.hpp"

#include <doctest/doctest.h>

#include <array>
#include <set>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

constexpr node_id gateway{5000};

schedule_request request_from(node_id where, std::uint64_t id, std::span<const block_key> keys = {},
                              std::uint32_t tokens = 100) {
  auto r = request_of(id, keys, tokens);
  r.gateway = where;
  return r;
}

void cut(conductor_core& core, std::uint64_t from, std::vector<node_id> to) {
  core.unreachable(node_id{from}, to);
}

}  // namespace

TEST_CASE("a link is broken if either end misses the other, until both have each other back") {
  broken_links links;
  const std::array to_two{node_id{2}}, to_one{node_id{1}};
  links.report(node_id{1}, to_two);
  CHECK(links.between(node_id{1}, node_id{2}));
  CHECK(links.between(node_id{2}, node_id{1}));
  CHECK(!links.between(node_id{1}, node_id{3}));
  CHECK(!links.between(node_id{1}, node_id{1}));
  links.report(node_id{2}, to_one);
  CHECK(links.all() == std::vector{std::pair{node_id{1}, node_id{2}}});
  links.report(node_id{1}, {});
  CHECK(links.between(node_id{1}, node_id{2}));
  links.report(node_id{2}, {});
  CHECK(links.empty());
  links.report(node_id{1}, to_two);
  links.forget(node_id{2});
  CHECK(links.empty());
}

TEST_CASE("nothing is placed on a prefill and a decode node that cannot talk, whatever the policy") {
  for (const auto policy : {placement_policy::random, placement_policy::load_balancing,
                            placement_policy::cache_aware, placement_policy::kvcache_centric}) {
    CAPTURE(to_string(policy));
    auto options = small_options();
    options.policy = policy;
    auto core = small_cluster(options, 2, 2);
    const auto keys = chain(1, 10);
    hold(core, 1, keys);  // the better place, if only it could talk
    cut(core, 1, {node_id{1001}, node_id{1002}});
    for (std::uint64_t id = 1; id <= 20; ++id) {
      const auto p = core.schedule(request_from(gateway, id, keys, 1050), start);
      REQUIRE(p.has_value());
      CHECK(p->prefill_node == node_id{2});
      core.finished(request_id{id}, start);
    }
    cut(core, 1, {node_id{1001}});
    std::set<std::pair<node_id, node_id>> pairs;
    for (std::uint64_t id = 21; id <= 60; ++id) {
      const auto p = core.schedule(request_from(gateway, id), start);
      REQUIRE(p.has_value());
      pairs.emplace(p->prefill_node, p->decode_node);
    }
    CHECK(!pairs.contains({node_id{1}, node_id{1001}}));
    CHECK(pairs.size() >= 2);
  }
}

TEST_CASE("workers that a gateway cannot reach get nothing of it, and other gateways do not mind") {
  auto core = small_cluster(small_options(), 2, 2);
  REQUIRE(core.add_node(gateway, start).has_value());
  core.unreachable(gateway, std::array{node_id{1}, node_id{1002}});
  for (std::uint64_t id = 1; id <= 10; ++id) {
    const auto p = core.schedule(request_from(gateway, id), start);
    REQUIRE(p.has_value());
    CHECK(p->prefill_node == node_id{2});
    CHECK(p->decode_node == node_id{1001});
  }
  CHECK(core.schedule(request_from(node_id{6000}, 11), start)->prefill_node == node_id{1});
  // Where no pair is left the client is asked for patience.
  core.unreachable(gateway, std::array{node_id{1001}, node_id{1002}});
  const auto none = core.schedule(request_from(gateway, 12), start);
  REQUIRE(!none.has_value());
  CHECK(none.error().cause == ec::unavailable);
  CHECK(none.error().retry_after > 0s);
  core.unreachable(gateway, {});
  CHECK(core.schedule(request_from(gateway, 13), start).has_value());
}

TEST_CASE("a prefix on a node that the prefill node cannot reach is computed, and priced so") {
  auto core = small_cluster(small_options(), 2, 1);
  const auto keys = chain(1, 10);
  hold(core, 1, keys);
  // The holder's own instance is cut off from decode; the other one could fetch, but cannot reach it.
  cut(core, 1, {node_id{1001}});
  auto p = core.schedule(request_from(gateway, 1, keys, 1050), start);
  CHECK(p->prefill_node == node_id{2});
  CHECK(p->source == node_id{1});
  core.finished(request_id{1}, start);
  cut(core, 1, {node_id{1001}, node_id{2}});
  p = core.schedule(request_from(gateway, 2, keys, 1050), start);
  CHECK(p->prefill_node == node_id{2});
  CHECK(!p->source);
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(1.05).epsilon(0.01));
}

TEST_CASE("what a gateway was charged for is given back when it leaves, and nobody else's") {
  auto core = small_cluster(small_options(), 2, 2);
  for (const auto node : {gateway, node_id{6000}}) REQUIRE(core.add_node(node, start).has_value());
  for (std::uint64_t id = 1; id <= 48; ++id) REQUIRE(core.schedule(request_from(gateway, id), start));
  REQUIRE(core.schedule(request_from(node_id{6000}, 49), start));
  core.first_token(request_id{1}, 100, 0, 100ms, start + 1s);
  CHECK(core.remove_node(gateway).size() == 48);
  CHECK(core.charged_requests() == 1);
  std::uint32_t charged = 0;
  for (const auto& v : core.cluster().views(start)) charged += v.charged;
  CHECK(charged == 2);
}

TEST_CASE("who was away himself blames nobody for the silence") {
  auto options = small_options();
  options.heartbeat_limit = 15s;
  auto core = small_cluster(options, 1, 1);
  for (auto at = 0s; at <= 5s; at += 1s) CHECK(core.expire(start + at).nodes.empty());
  // Stopped for an hour: nobody was heard in that time.
  CHECK(core.expire(start + 1h).nodes.empty());
  for (auto at = 1s; at <= 9s; at += 1s) CHECK(core.expire(start + 1h + at).nodes.empty());
  core.heartbeat(node_id{1}, start + 1h + 9s);
  // Those that still say nothing are gone, after the time that they are given.
  std::vector<node_id> gone;
  for (auto at = 10s; at <= 20s; at += 1s) {
    const auto more = core.expire(start + 1h + at).nodes;
    gone.insert(gone.end(), more.begin(), more.end());
  }
  CHECK(gone == std::vector{node_id{1001}});
}

TEST_CASE(
    "a coupled node does both for a request, and one that cannot be reached or failed it gets nothing") {
  auto options = small_options();
  options.coupled = true;
  conductor_core core{options};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    static_cast<void>(core.add_node(node_id{i}, start));
    REQUIRE(core.add_instance(prefill_instance(i, node_id{i})));
    REQUIRE(core.add_instance(decode_instance(1000 + i, node_id{i})));
  }
  // A node that only prefills is no place for it.
  static_cast<void>(core.add_node(node_id{9}, start));
  REQUIRE(core.add_instance(prefill_instance(9, node_id{9})));
  const auto nodes = [&](std::uint64_t first, std::span<const worker_id> avoid) {
    std::set<node_id> used;
    for (std::uint64_t id = first; id < first + 12; ++id) {
      auto request = request_from(gateway, id);
      request.avoid = avoid;
      const auto p = core.schedule(request, start);
      REQUIRE(p.has_value());
      CHECK(p->prefill_node == p->decode_node);
      used.insert(p->prefill_node);
    }
    for (std::uint64_t id = first; id < first + 12; ++id) core.finished(request_id{id}, start);
    return used;
  };
  CHECK(nodes(1, {}) == std::set{node_id{1}, node_id{2}, node_id{3}});
  const std::array failed{worker_id{1002}};
  CHECK(nodes(101, failed) == std::set{node_id{1}, node_id{3}});
  cut(core, 1, {gateway});
  CHECK(nodes(201, {}) == std::set{node_id{2}, node_id{3}});
  // Where it failed is still better than nowhere.
  cut(core, 3, {gateway});
  CHECK(nodes(301, failed) == std::set{node_id{2}});
}
