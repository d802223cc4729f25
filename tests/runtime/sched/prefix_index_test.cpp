#include "runtime/sched/prefix_index.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace mooncaf;

namespace {

block_key key(std::uint64_t n) { return hash_text128("key " + std::to_string(n)); }

std::vector<block_key> chain(std::uint64_t session, std::size_t count) {
  std::vector<block_key> keys;
  for (std::size_t i = 0; i < count; ++i) keys.push_back(key(session * 1000 + i));
  return keys;
}

/// Every holder, ascending by node, whether it was named or part of a crowd.
std::vector<holder_match> all_of(const prefix_match& m) {
  std::vector<holder_match> all(m.few().begin(), m.few().end());
  for (const auto& c : m.crowds()) {
    c.nodes.for_each([&](node_index n) { all.push_back({n, c.blocks, c.blocks}); });
  }
  std::ranges::sort(all, {}, &holder_match::node);
  return all;
}

/// The same promises by a map: what the index is held against.
struct plain_index {
  std::map<block_key, std::map<node_index, storage_tier>> holders;

  std::vector<holder_match> match(std::span<const block_key> keys, std::size_t nodes) const {
    std::vector<holder_match> all;
    for (std::size_t n = 0; n < nodes; ++n) {
      holder_match m{static_cast<node_index>(n), 0, 0};
      for (const auto& k : keys) {
        const auto i = holders.find(k);
        if (i == holders.end() || !i->second.contains(m.node)) break;
        if (i->second.at(m.node) == storage_tier::dram && m.dram_blocks == m.blocks) ++m.dram_blocks;
        ++m.blocks;
      }
      if (m.blocks > 0) all.push_back(m);
    }
    return all;
  }
  void drop(node_index node) {
    for (auto i = holders.begin(); i != holders.end();) {
      i->second.erase(node);
      i = i->second.empty() ? holders.erase(i) : std::next(i);
    }
  }
};

}  // namespace

TEST_CASE("an empty index matches nothing") {
  prefix_index index;
  prefix_match m;
  index.match(chain(1, 5), m);
  CHECK(m.empty());
  CHECK(m.best_blocks() == 0);
  index.match({}, m);
  CHECK(m.empty());
}

TEST_CASE("a match stops at the first block that a node lacks") {
  prefix_index index;
  const auto a = *index.add_node();
  const auto b = *index.add_node();
  const auto keys = chain(1, 6);
  for (const auto i : {0, 1, 2, 4, 5}) index.add(keys[i], a, storage_tier::dram);
  for (const auto i : {0, 1, 2, 3}) index.add(keys[i], b, i < 2 ? storage_tier::dram : storage_tier::ssd);
  prefix_match m;
  index.match(keys, m);
  CHECK(all_of(m) == std::vector<holder_match>{{a, 3, 3}, {b, 4, 2}});
  CHECK(m.best_blocks() == 4);
  CHECK(index.matched_blocks(a, keys) == 3);
  CHECK(index.matched_blocks(b, keys) == 4);
}

TEST_CASE("a block that moves between tiers is held once") {
  prefix_index index;
  const auto a = *index.add_node();
  index.add(key(1), a, storage_tier::dram);
  index.add(key(1), a, storage_tier::ssd);
  const auto k = key(1);
  prefix_match m;
  index.match({&k, 1}, m);
  CHECK(all_of(m) == std::vector<holder_match>{{a, 1, 0}});
  index.remove(k, a);
  CHECK(index.size() == 0);
  index.remove(k, a);  // a second word about it changes nothing
  CHECK(index.size() == 0);
}

TEST_CASE("a system prompt that every node holds is matched as a crowd") {
  prefix_index index;
  const auto stem = chain(1, 4);
  const auto tail = chain(2, 3);
  std::vector<block_key> prompt = stem;
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  constexpr std::size_t nodes = 3000;
  for (std::size_t n = 0; n < nodes; ++n) {
    const auto node = *index.add_node();
    for (const auto& k : stem) index.add(k, node, storage_tier::dram);
  }
  for (const auto& k : tail) index.add(k, 1234, storage_tier::dram);
  prefix_match m;
  index.match(prompt, m);
  REQUIRE(m.crowds().size() == 1);
  CHECK(m.crowds()[0].blocks == 4);
  CHECK(m.crowds()[0].nodes.size() == nodes - 1);
  CHECK(m.few().size() == 1);
  CHECK(m.best_blocks() == 7);
  CHECK(index.holder_count(stem[0]) == nodes);
  CHECK(index.holder_count(tail[0]) == 1);
}

TEST_CASE("of several holders of a block exactly one keeps it, and who has it in memory comes first") {
  for (const std::size_t holders : {1, 2, 4, 5, 60, 200}) {
    CAPTURE(holders);
    prefix_index index;
    std::vector<node_index> nodes;
    for (std::size_t i = 0; i < holders; ++i) nodes.push_back(*index.add_node());
    std::vector<std::size_t> keeps(holders);
    const auto keepers = [&](const block_key& k) {
      std::vector<node_index> out;
      for (const auto n : nodes)
        if (!index.kept_elsewhere(k, n)) out.push_back(n);
      return out;
    };
    constexpr std::uint64_t blocks = 400;
    for (std::uint64_t b = 0; b < blocks; ++b) {
      for (const auto n : nodes) index.add(key(b), n, storage_tier::ssd);
      const auto first = keepers(key(b));
      REQUIRE(first.size() == 1);
      ++keeps[first[0]];
      const auto other = nodes[(first[0] + 1) % holders];
      index.add(key(b), other, storage_tier::dram);
      CHECK(keepers(key(b)) == std::vector{other});
      // Whoever kept it lets go: another one does.
      index.remove(key(b), other);
      if (holders > 1) CHECK(index.kept_elsewhere(key(b), other) == false);
      CHECK(keepers(key(b)).size() == (holders > 1 ? 2 : 1));  // the one that lacks it is told nothing
    }
    if (holders > 1 && holders <= 5)
      CHECK(*std::ranges::min_element(keeps) > blocks / holders / 2);  // the load is shared
    if (holders == 1) continue;
    const auto one_more = key(blocks);
    for (const auto n : nodes) index.add(one_more, n, n == nodes[0] ? storage_tier::dram : storage_tier::ssd);
    CHECK(keepers(one_more) == std::vector{nodes[0]});
    index.drop_node(nodes[0]);
    CHECK(keepers(one_more).size() == 2);  // one of the living, and the dead one, which has nothing
  }
}

TEST_CASE("a dropped node is gone at once, and its number comes back only without its blocks") {
  prefix_index index;
  const auto a = *index.add_node();
  const auto b = *index.add_node();
  const auto keys = chain(7, 50);
  for (const auto& k : keys) {
    index.add(k, a, storage_tier::dram);
    index.add(k, b, storage_tier::dram);
  }
  const auto only_a = chain(8, 50);
  for (const auto& k : only_a) index.add(k, a, storage_tier::dram);
  index.drop_node(a);
  prefix_match m;
  index.match(keys, m);
  CHECK(all_of(m) == std::vector<holder_match>{{b, 50, 50}});
  CHECK(index.matched_blocks(a, keys) == 0);
  CHECK(*index.add_node() != a);
  for (int i = 0; i < 100'000 && index.size() > 50; ++i) index.sweep(3);
  CHECK(index.size() == 50);
  index.sweep(~std::size_t{0});
  const auto again = *index.add_node();
  CHECK(again == a);
  index.match(only_a, m);
  CHECK(m.empty());
}

TEST_CASE("numbers of nodes run out with a word, and are swept up when they do") {
  prefix_index index;
  for (std::size_t i = 0; i < prefix_index::max_nodes; ++i) REQUIRE(index.add_node().has_value());
  CHECK(!index.add_node().has_value());
  index.add(key(1), 77, storage_tier::dram);
  index.drop_node(77);
  CHECK(index.add_node() == node_index{77});
  CHECK(index.size() == 0);
}

TEST_CASE("random events leave what a plain map holds") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    // Few nodes: inline holders; hundreds: lists and bitmaps, back and forth.
    const std::size_t nodes = seed <= 2 ? 6 : seed <= 4 ? 60 : 700;
    const std::size_t sessions = seed <= 2 ? 200 : 3;
    constexpr std::size_t length = 12;
    prefix_index index;
    plain_index plain;
    std::set<node_index> live;
    for (std::size_t n = 0; n < nodes; ++n) live.insert(*index.add_node());
    const auto any_node = [&] {
      auto i = live.begin();
      std::advance(i, static_cast<std::ptrdiff_t>(random() % live.size()));
      return *i;
    };
    prefix_match m;
    for (int step = 0; step < 12'000; ++step) {
      const auto session = random() % sessions;
      const auto node = any_node();
      const auto what = random() % 100;
      if (what < 62) {
        // A run of leading blocks, as a prefill leaves them.
        const auto upto = 1 + random() % length;
        const auto keys = chain(session, upto);
        const auto tier = random() % 4 == 0 ? storage_tier::ssd : storage_tier::dram;
        for (const auto& k : keys) {
          index.add(k, node, tier);
          plain.holders[k][node] = tier;
        }
      } else if (what < 95) {
        const auto k = chain(session, length)[random() % length];
        index.remove(k, node);
        if (const auto i = plain.holders.find(k); i != plain.holders.end()) {
          i->second.erase(node);
          if (i->second.empty()) plain.holders.erase(i);
        }
      } else if (what < 96) {
        index.drop_node(node);
        plain.drop(node);
        live.erase(node);
        const auto fresh = index.add_node();
        REQUIRE(fresh.has_value());
        REQUIRE(live.insert(*fresh).second);
      } else {
        index.sweep(random() % 500);
      }
      if (step % 20 != 0) continue;
      const auto keys = chain(random() % sessions, length);
      index.match(keys, m);
      const auto expected = plain.match(keys, 2000);
      REQUIRE(all_of(m) == expected);
      std::uint32_t best = 0;
      for (const auto& e : expected) best = std::max(best, e.blocks);
      REQUIRE(m.best_blocks() == best);
      REQUIRE(index.matched_blocks(node, keys) <= best);
    }
    index.sweep(~std::size_t{0});
    index.sweep(~std::size_t{0});
    CHECK(index.size() == plain.holders.size());
    for (const auto node : live) {
      const auto held =
          std::ranges::count_if(plain.holders, [&](const auto& b) { return b.second.contains(node); });
      CHECK(index.held_blocks(node) == static_cast<std::uint64_t>(held));
    }
  }
}

TEST_CASE("an indexed block takes at most 40 bytes at any size") {
  prefix_index index;
  for (int n = 0; n < 8; ++n) index.add_node();
  std::uint64_t worst = 0;
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    index.add(key(i), static_cast<node_index>(i % 8), storage_tier::dram);
    if (i > 20'000 && i % 1000 == 0)
      worst = std::max<std::uint64_t>(worst, index.memory_bytes() * 100 / (i + 1));
  }
  CHECK(worst <= 4000);
}
