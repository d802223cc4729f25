#include "runtime/sched/pool_writes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace mooncaf;

namespace {

block_key key(std::uint64_t chain, std::uint64_t depth) { return {chain * 1000 + depth + 1, 7}; }

std::vector<block_name> chain(std::uint64_t id, std::uint64_t from, std::uint64_t to) {
  std::vector<block_name> out;
  for (auto d = from; d < to; ++d) out.push_back({key(id, d), d == 0 ? block_key{} : key(id, d - 1)});
  return out;
}

const auto nobody = [](node_id, const block_key&) { return false; };

}  // namespace

TEST_CASE("without a pool nothing is copied") { CHECK(plan_pool_writes(chain(1, 0, 3), {}, nobody).empty()); }

TEST_CASE("a chain goes to one node in one piece, and chains spread over the pool evenly") {
  const std::vector<node_id> pool{node_id{1}, node_id{2}, node_id{3}};
  std::map<std::uint64_t, int> share;
  for (std::uint64_t c = 0; c < 3000; ++c) {
    const auto plan = plan_pool_writes(chain(c, 0, 5), pool, nobody);
    REQUIRE(plan.size() == 1);
    CHECK(plan[0].count == 5);
    ++share[plan[0].target.value];
  }
  for (const auto node : pool) CHECK(share[node.value] == doctest::Approx(1000).epsilon(0.15));
}

TEST_CASE("a node that leaves the pool moves its own chains alone") {
  const std::vector<node_id> all{node_id{1}, node_id{2}, node_id{3}}, rest{node_id{1}, node_id{3}};
  for (std::uint64_t c = 0; c < 300; ++c) {
    const auto before = plan_pool_writes(chain(c, 0, 1), all, nobody)[0].target;
    const auto after = plan_pool_writes(chain(c, 0, 1), rest, nobody)[0].target;
    if (before != node_id{2}) CHECK(after == before);
  }
}

TEST_CASE("later blocks follow those that are kept already, and what is kept is not copied again") {
  const std::vector<node_id> pool{node_id{1}, node_id{2}};
  const std::set<block_key> kept{key(5, 0), key(5, 1), key(5, 4)};
  const auto holds = [&](node_id n, const block_key& k) { return n == node_id{2} && kept.contains(k); };
  const auto plan = plan_pool_writes(chain(5, 2, 7), pool, holds);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].target == node_id{2});
  CHECK(plan[0].first == 0);
  CHECK(plan[0].count == 2);
  CHECK(plan[1].target == node_id{2});
  CHECK(plan[1].first == 3);
  CHECK(plan[1].count == 2);
}

TEST_CASE("blocks of several prompts in one batch are told apart") {
  const std::vector<node_id> pool{node_id{1}};
  auto blocks = chain(1, 0, 2);
  for (const auto& b : chain(2, 0, 3)) blocks.push_back(b);
  const auto plan = plan_pool_writes(blocks, pool, nobody);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].count == 2);
  CHECK(plan[1].first == 2);
  CHECK(plan[1].count == 3);
}

TEST_CASE("a snapshot in any order is read as the chains that it holds") {
  auto blocks = chain(1, 0, 4);
  for (const auto& b : chain(2, 3, 6)) blocks.push_back(b);  // its first blocks were not named
  blocks.push_back({key(3, 9), key(1, 1)});                  // a second prompt that shares two blocks
  blocks.push_back({key(4, 0), key(4, 0)});                  // nonsense ends, too
  std::mt19937 random{7};
  for (int round = 0; round < 50; ++round) {
    std::ranges::shuffle(blocks, random);
    const auto order = in_chains(blocks);
    REQUIRE(order.size() == blocks.size());
    std::set<block_key> seen, all;
    for (const auto& b : blocks) all.insert(b.key);
    int breaks = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& b = blocks[order[i]];
      if (all.contains(b.parent) && b.parent != b.key) CHECK(seen.contains(b.parent));
      if (i > 0 && b.parent != blocks[order[i - 1]].key) ++breaks;
      seen.insert(b.key);
    }
    CHECK(seen.size() == blocks.size());
    CHECK(breaks == 3);  // between the three prompts and the nonsense
  }
}
