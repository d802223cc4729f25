// Prefixes that are kept: for how long, within whose share, and each block once.

#include "storage/kept_prefixes.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

std::vector<block_key> chain_of(std::uint64_t root, std::size_t blocks) {
  std::vector<block_key> out;
  for (std::uint64_t i = 1; i <= blocks; ++i) out.push_back({root, i});
  return out;
}

}  // namespace

TEST_CASE("a prefix is kept for its time from the latest word of it on") {
  kept_prefixes kept{{100, 100}};
  const time_point now{1h};
  const auto first = kept.keep(1, chain_of(7, 5), 5min, now);
  CHECK(first.kept);
  REQUIRE(first.fresh);
  const auto again = kept.keep(1, chain_of(7, 5), 5min, now + 4min);
  CHECK(again.kept);
  CHECK_FALSE(again.fresh);
  CHECK(kept.expire(now + 6min).empty());
  CHECK(kept.expire(now + 9min) == std::vector{*first.fresh});
  CHECK(kept.size() == 0);
  CHECK(kept.blocks() == 0);
}

TEST_CASE("a conversation that goes on is kept once, unless an earlier part of it is kept for longer") {
  kept_prefixes kept{{100, 100}};
  const time_point now{1h};
  const auto system = kept.keep(1, chain_of(7, 3), 1h, now);
  const auto turn = kept.keep(1, chain_of(7, 6), 5min, now);
  CHECK(turn.over.empty());
  const auto next = kept.keep(1, chain_of(7, 9), 5min, now + 1min);
  CHECK(next.over == std::vector{*turn.fresh});
  CHECK(kept.blocks() == 9);
  CHECK(kept.size() == 2);
  CHECK(kept.of(1).front().blocks == 3);
  CHECK(kept.expire(now + 10min) == std::vector{*next.fresh});
  CHECK(kept.blocks() == 3);
  CHECK(kept.drop(1, std::nullopt) == std::vector{*system.fresh});
}

TEST_CASE("a tenant's own oldest gives way, never another's") {
  kept_prefixes kept{{20, 10}};
  const time_point now{1h};
  const auto a = kept.keep(1, chain_of(1, 5), 5min, now);
  const auto b = kept.keep(1, chain_of(2, 5), 5min, now);
  (void)kept.keep(1, chain_of(1, 5), 5min, now);  // used again
  const auto c = kept.keep(1, chain_of(3, 5), 5min, now);
  CHECK(c.over == std::vector{*b.fresh});
  CHECK_FALSE(kept.keep(1, chain_of(4, 11), 5min, now).kept);
  CHECK(kept.keep(2, chain_of(5, 10), 5min, now).kept);
  // All of the room is taken: a third tenant gets none of it, and nobody loses what is kept.
  CHECK_FALSE(kept.keep(3, chain_of(6, 1), 5min, now).kept);
  CHECK(kept.blocks() == 20);
  CHECK(kept.drop(2, block_key{5, 9}).empty());
  CHECK(kept.drop(2, block_key{5, 10}).size() == 1);
  CHECK(kept.keep(3, chain_of(6, 1), 5min, now).kept);
  CHECK(a.kept);
  kept_prefixes none{{0, 0}};
  CHECK_FALSE(none.keep(1, chain_of(1, 1), 5min, now).kept);
}

TEST_CASE("whatever is asked, holds begin and end once, and no share is exceeded") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    const keep_limits limits{5 + random() % 40, 3 + random() % 30};
    kept_prefixes kept{limits};
    std::map<kept_prefixes::hold_id, std::pair<std::uint64_t, std::vector<block_key>>> held;
    time_point now{1h};
    const auto ended = [&](const std::vector<kept_prefixes::hold_id>& over) {
      for (const auto hold : over) CHECK(held.erase(hold) == 1);
    };
    for (int step = 0; step < 300; ++step) {
      now += std::chrono::seconds(random() % 60);
      const auto tenant = 1 + random() % 3;
      const auto what = random() % 10;
      if (what < 7) {
        const auto keys = chain_of(random() % 6, random() % 12);
        const auto decided = kept.keep(tenant, keys, std::chrono::seconds(random() % 600), now);
        if (decided.fresh) CHECK(held.emplace(*decided.fresh, std::pair{std::uint64_t{tenant}, keys}).second);
        ended(decided.over);
      } else if (what < 9) {
        ended(kept.expire(now));
      } else {
        ended(kept.drop(tenant,
                        random() % 2 ? std::nullopt : std::optional{block_key{random() % 6, random() % 12}}));
      }
      std::map<std::uint64_t, std::set<block_key>> of_tenant;
      std::set<block_key> all;
      for (const auto& [hold, what_for] : held)
        for (const auto& key : what_for.second) of_tenant[what_for.first].insert(key), all.insert(key);
      CHECK(kept.size() == held.size());
      CHECK(kept.blocks() == all.size());
      std::size_t charged = 0;
      for (const auto& [who, keys] : of_tenant) {
        CHECK(keys.size() <= limits.per_tenant);
        charged += keys.size();
      }
      CHECK(charged <= limits.blocks);
    }
    ended(kept.expire(time_point::max()));
    CHECK(held.empty());
  }
}
