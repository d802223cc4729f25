#include "runtime/sim/hit_ratio.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "tests/runtime/sim/world.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

/// The definition, with nothing clever: every victim is found by looking at all blocks.
double brute_force(const std::vector<workload_record>& records, eviction_policy policy,
                   std::size_t capacity) {
  struct block {
    std::uint64_t uses = 0, latest = 0, depth = 0;
  };
  std::map<std::uint64_t, block> pool;
  std::uint64_t now = 0, hits = 0, asked = 0;
  const auto goes_before = [&](const block& a, const block& b) {
    switch (policy) {
      case eviction_policy::lru:
        return std::tuple{a.latest, b.depth} < std::tuple{b.latest, a.depth};
      case eviction_policy::lfu:
        return std::tuple{a.uses, a.latest, b.depth} < std::tuple{b.uses, b.latest, a.depth};
      case eviction_policy::length_aware:
        return std::tuple{a.uses, b.depth, a.latest} < std::tuple{b.uses, a.depth, b.latest};
      case eviction_policy::cost_aware:
        break;
    }
    return false;
  };
  for (const auto& r : records) {
    ++now;
    for (const auto id : r.hash_ids) hits += pool.contains(id);
    asked += r.hash_ids.size();
    for (std::uint64_t depth = 0; depth < r.hash_ids.size(); ++depth) {
      const auto id = r.hash_ids[depth];
      if (const auto here = pool.find(id); here != pool.end()) {
        ++here->second.uses;
        here->second.latest = now;
        continue;
      }
      while (capacity > 0 && pool.size() >= capacity) {
        auto victim = pool.begin();
        for (auto i = pool.begin(); i != pool.end(); ++i) {
          if (goes_before(i->second, victim->second)) victim = i;
        }
        pool.erase(victim);
      }
      pool[id] = {1, now, depth};
    }
  }
  return static_cast<double>(hits) / static_cast<double>(asked);
}

double six_digits(double ratio) { return std::round(ratio * 1e6) / 1e6; }

}  // namespace

TEST_CASE("hit ratios agree to six digits with a pool that looks at every block for every victim") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    workload_options o;
    o.requests = 500;
    o.seed = seed;
    o.kind = static_cast<workload_kind>(seed % 3);
    o.input_mean = 6000;
    const auto records = all_of(o);
    for (const auto policy : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}) {
      for (const std::size_t capacity : {0, 2000, 400, 60}) {
        hit_ratio_pool pool{{policy, false}, capacity};
        for (const auto& r : records) pool.request(r);
        INFO("seed ", seed, ", ", to_string(policy), ", capacity ", capacity);
        CHECK(six_digits(pool.ratio()) == six_digits(brute_force(records, policy, capacity)));
      }
    }
  }
}

TEST_CASE("an endless pool misses the first use of every block and nothing else") {
  const auto records = conversation_like(2000);
  std::map<std::uint64_t, int> uses;
  std::uint64_t asked = 0;
  for (const auto& r : records) {
    asked += r.hash_ids.size();
    for (const auto id : r.hash_ids) ++uses[id];
  }
  hit_ratio_pool pool{{}, 0};
  for (const auto& r : records) pool.request(r);
  CHECK(pool.hits() == asked - uses.size());
  CHECK(pool.prefix_hits() == pool.hits());
}

TEST_CASE(
    "a leaf-first pool never holds a block without the ones before it, so all of its hits can be used") {
  const auto records = conversation_like(2000, 7);
  for (const auto policy : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}) {
    hit_ratio_pool pool{{policy, true}, 2000};
    for (const auto& r : records) pool.request(r);
    CHECK(pool.hits() == pool.prefix_hits());
  }
}

// The public trace is not part of this repository: it is looked for beside it.
TEST_CASE("the conversation trace gives the table of the figures page") {
  const char* named = std::getenv("MOONCAF_CONVERSATION_TRACE");
  const std::string path = named != nullptr ? named : MOONCAF_CONVERSATION_TRACE_PATH;
  if (path.empty()) {
    std::printf(
        "SKIPPED: no conversation trace at ../shared/traces beside the project, nor in "
        "MOONCAF_CONVERSATION_TRACE\n");
    return;
  }
  const auto records = load_trace(path, {});
  REQUIRE(records);
  const auto ratio = [&](eviction_policy policy, std::size_t capacity) {
    hit_ratio_pool pool{{policy, false}, capacity};
    for (const auto& r : *records) pool.request(r);
    return six_digits(pool.ratio());
  };
  CHECK(ratio(eviction_policy::lru, 0) == 0.366412);
  CHECK(ratio(eviction_policy::lru, 30'000) == 0.325747);
  CHECK(ratio(eviction_policy::lfu, 50'000) == 0.343865);
  CHECK(ratio(eviction_policy::length_aware, 10'000) == 0.112277);
  CHECK(ratio(eviction_policy::lfu, 1000) == six_digits(brute_force(*records, eviction_policy::lfu, 1000)));
  CHECK(ratio(eviction_policy::length_aware, 1000) ==
        six_digits(brute_force(*records, eviction_policy::length_aware, 1000)));
  CHECK(ratio(eviction_policy::lru, 1000) == six_digits(brute_force(*records, eviction_policy::lru, 1000)));
}
