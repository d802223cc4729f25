// Which blocks are copied where, ahead of need.

#include "runtime/sched/hot_blocks.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

/// Four idle nodes with room for ten copies each, of which the first holds a system prompt of five blocks.
struct hot_world {
  hot_world() {
    for (std::uint64_t n = 1; n <= 4; ++n) nodes.push_back({node_id{n}, 0s, 10});
    hold(1, prompt);
  }
  void hold(std::uint64_t node, const std::vector<block_key>& keys) {
    held[node_id{node}].insert(keys.begin(), keys.end());
  }
  void use(int times, const std::vector<block_key>& keys) {
    for (int i = 0; i < times; ++i) hot.used(keys, now);
  }
  /// Plans, and does it.
  std::vector<hot_copy> plan() {
    const auto copies = hot.plan(
        nodes, [&](node_id n, const block_key& k) { return held[n].contains(k); }, now);
    for (const auto& c : copies) {
      for (const auto& b : c.blocks) {
        CHECK(held[c.source].contains(b.key));
        CHECK(held[c.target].insert(b.key).second);
        CHECK((b.depth == 0 || held[c.target].contains(b.parent)));
      }
    }
    return copies;
  }

  std::vector<block_key> prompt = chain(1, 5);
  std::vector<hot_node> nodes;
  std::map<node_id, std::set<block_key>> held;
  hot_blocks hot{{.uses_per_holder = 8, .most_tracked = 1000}};
  time_point now{100s};
};

}  // namespace

TEST_CASE_FIXTURE(hot_world,
                  "a prompt that is used more than its holder is worth gets another, one at a time") {
  use(8, prompt);
  CHECK(plan().empty());
  use(9, prompt);  // 17: worth three holders
  const auto first = plan();
  REQUIRE(first.size() == 1);
  CHECK(first.front().blocks.size() == 5);
  CHECK(first.front().source == node_id{1});
  CHECK(plan().size() == 1);
  CHECK(plan().empty());
}

TEST_CASE_FIXTURE(hot_world,
                  "copies go to whom has least to do, and come from the holder who has least to do") {
  nodes[1].queue = 2s;
  nodes[2].queue = 1s;
  nodes[3].queue = 3s;
  use(9, prompt);
  CHECK(plan().front().target == node_id{3});
  nodes[0].queue = 5s;
  use(9, prompt);
  const auto next = plan();
  CHECK(next.front().source == node_id{3});
  CHECK(next.front().target == node_id{2});
}

TEST_CASE_FIXTURE(hot_world, "only the part that is hot is copied") {
  auto one = prompt, two = prompt;
  const auto tail_one = chain(7, 3), tail_two = chain(8, 3);
  one.insert(one.end(), tail_one.begin(), tail_one.end());
  two.insert(two.end(), tail_two.begin(), tail_two.end());
  hold(1, one);
  hold(1, two);
  use(6, one);
  use(6, two);
  const auto copies = plan();
  REQUIRE(copies.size() == 1);
  CHECK(copies.front().blocks.size() == 5);
}

TEST_CASE_FIXTURE(hot_world, "heat fades, and with it the reason for a copy") {
  use(12, prompt);
  now += 30s;
  CHECK(hot.heat(prompt[0], now) == doctest::Approx(6));
  CHECK(plan().empty());
}

TEST_CASE_FIXTURE(hot_world, "a node takes no more copies than its budget, until some are evicted") {
  for (auto& n : nodes) n.budget_blocks = 0;
  nodes[2].budget_blocks = 3;
  use(40, prompt);
  CHECK(plan().front().blocks.size() == 3);
  CHECK(hot.copies_on(node_id{3}) == 3);
  CHECK(plan().empty());
  held[node_id{3}].clear();
  now += 11s;
  CHECK(plan().front().blocks.size() == 3);
}

TEST_CASE_FIXTURE(hot_world, "an order that is on its way is not given again") {
  use(12, prompt);
  const auto nothing_new = [&](node_id n, const block_key& k) { return held[n].contains(k); };
  CHECK(hot.plan(nodes, nothing_new, now).size() == 1);
  CHECK(hot.plan(nodes, nothing_new, now).empty());
  now += 11s;  // it was lost
  use(12, prompt);
  CHECK(!hot.plan(nodes, nothing_new, now).empty());
}

TEST_CASE_FIXTURE(hot_world, "what is remembered is bounded, and the hottest stay") {
  use(20, prompt);
  for (std::uint64_t i = 0; i < 3000; ++i) use(1, chain(100 + i, 1));
  CHECK(hot.heat(prompt[4], now) == doctest::Approx(20));
  CHECK(hot.heat(chain(100, 1)[0], now) == 0);
}

TEST_CASE("a hot prompt spreads over a cluster ahead of need, and its source pays for it") {
  const auto keys = chain(1, 10);
  auto options = small_options();
  auto core = small_cluster(options, 4);
  hold(core, 1, keys);
  for (std::uint64_t id = 1; id <= 30; ++id)
    REQUIRE(core.schedule(request_of(id, keys, 1050), start).has_value());
  CHECK(core.copy_hot_blocks(start).empty());  // nobody said that there is room
  for (std::uint64_t n = 1; n <= 4; ++n) core.memory_of(node_id{n}, 1000);
  for (std::uint64_t id = 31; id <= 60; ++id)
    REQUIRE(core.schedule(request_of(id, keys, 1050), start).has_value());
  const auto wait = core.transfers().wait(*core.cluster().index_of(node_id{1}), start);
  const auto copies = core.copy_hot_blocks(start);
  REQUIRE(copies.size() == 1);
  CHECK(copies.front().source == node_id{1});
  CHECK(copies.front().blocks.size() == 10);
  CHECK(core.counts().hot_copies == 10);
  CHECK(core.transfers().wait(*core.cluster().index_of(node_id{1}), start) > wait);
}
