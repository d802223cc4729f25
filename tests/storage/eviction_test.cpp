
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "storage/copy_survey.hpp"
#include "storage/flat_index.hpp"
#include "storage/prefix_tree.hpp"
#include "tests/storage/block_maker.hpp"

using namespace mooncaf;
using test::prompt;

namespace {

/// Adds a prompt's blocks, all used at `now`.
void use(prefix_tree::tier& index, const std::vector<block_name>& names, std::uint64_t now) {
  for (const auto& n : names) {
    const auto h = index.find(n.key);
    if (h == prefix_tree::none) {
      index.insert(n.key, n.parent, n.depth, now);
    } else {
      index.tree().touch(h, now);
    }
  }
}

block_key evict(prefix_tree::tier& index) {
  const auto h = index.victim();
  REQUIRE(h != prefix_tree::none);
  const auto key = index.tree().key(h);
  index.erase(h);
  return key;
}

/// The specification, slowly: what must go next, by looking at everything.
struct reference {
  struct block {
    block_name name;
    std::uint64_t used, frequency;
    int pins;
    copy_kind copy = copy_kind::alone;
  };
  eviction_options options;
  std::map<block_key, block> blocks;
  std::uint64_t latest = 0;

  void use(const block_name& name, std::uint64_t now) {
    auto& b = blocks.try_emplace(name.key, block{name, 0, 0, 0}).first->second;
    b.used = latest = now;
    ++b.frequency;
  }
  bool candidate(const block& b) const {
    if (b.pins > 0) return false;
    if (!options.leaf_first) return true;
    for (const auto& [k, c] : blocks)
      if (c.name.depth > 0 && c.name.parent == b.name.key) return false;
    return true;
  }
  auto rank(const block& b) const {
    const std::uint64_t shallow = ~std::uint64_t{b.name.depth};
    switch (options.policy) {
      case eviction_policy::lru:
        return std::tuple(b.used, shallow, std::uint64_t{0});
      case eviction_policy::lfu:
        return std::tuple(b.frequency, b.used, shallow);
      case eviction_policy::length_aware:
        return std::tuple(b.frequency, shallow, b.used);
      case eviction_policy::cost_aware:
        break;
    }
    return std::tuple(std::uint64_t{0}, shallow, std::uint64_t{0});
  }
  const block* coldest(copy_kind kind) const {
    const block* best = nullptr;
    for (const auto& [k, b] : blocks)
      if (b.copy == kind && candidate(b) && (!best || rank(b) < rank(*best))) best = &b;
    return best;
  }
  /// What comes again; else the coldest, where one that lies elsewhere counts as so much colder.
  const block* victim() const {
    if (const auto* b = coldest(copy_kind::comes_again)) return b;
    const auto *spare = coldest(copy_kind::elsewhere), *alone = coldest(copy_kind::alone);
    if (!spare || !alone) return spare ? spare : alone;
    if (options.policy != eviction_policy::lru && spare->frequency != alone->frequency)
      return spare->frequency < alone->frequency * options.copy_age ? spare : alone;
    return (latest - spare->used) * options.copy_age >= latest - alone->used ? spare : alone;
  }
};

}  // namespace

TEST_CASE("LRU gives up the prompt that was not used for longest, last block first") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {eviction_policy::lru, true}, {storage_tier::dram});
  const auto a = prompt({1, 1}), b = prompt({2, 2});
  use(index, a, 1);
  use(index, b, 2);
  use(index, a, 3);
  CHECK(evict(index) == b[1].key);
  CHECK(evict(index) == b[0].key);
  CHECK(evict(index) == a[1].key);
  CHECK(evict(index) == a[0].key);
  CHECK(index.victim() == prefix_tree::none);
}

TEST_CASE("LFU gives up what was used least often and forgets the count with the block") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {eviction_policy::lfu, true}, {storage_tier::dram});
  const auto a = prompt({1}), b = prompt({2});
  use(index, a, 1);
  use(index, a, 2);
  use(index, a, 3);
  use(index, b, 4);
  use(index, b, 5);
  CHECK(evict(index) == b[0].key);
  use(index, b, 6);
  CHECK(tree.uses(index.find(b[0].key)) == 1);
  CHECK(evict(index) == b[0].key);
  CHECK(evict(index) == a[0].key);
}

TEST_CASE("length-aware gives up the block latest in its request among the least used") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {eviction_policy::length_aware, true}, {storage_tier::dram});
  const auto longer = prompt({1, 1, 1}), shorter = prompt({2, 2});
  use(index, shorter, 1);
  use(index, longer, 2);
  CHECK(evict(index) == longer[2].key);
  CHECK(evict(index) == shorter[1].key);  // as deep as longer[1], but older
  CHECK(evict(index) == longer[1].key);
}

TEST_CASE("length-aware breaks ties of depth by recency") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {eviction_policy::length_aware, true}, {storage_tier::dram});
  const auto a = prompt({1, 1}), b = prompt({2, 2});
  use(index, b, 1);
  use(index, a, 2);
  CHECK(evict(index) == b[1].key);
  CHECK(evict(index) == a[1].key);
}

TEST_CASE("leaf-first keeps a shared prefix while any continuation is resident; plain does not") {
  const auto a = prompt({1, 1, 1}), b = prompt({1, 1, 2});
  for (bool leaf_first : {true, false}) {
    prefix_tree tree;
    auto& index = tree.open(storage_tier::ssd, {eviction_policy::lru, leaf_first}, {storage_tier::dram});
    use(index, a, 1);
    // The end of b came in without its prefix being used, as a promotion does it.
    index.insert(b[2].key, b[2].parent, 2, 2);
    CHECK(evict(index) == a[2].key);
    CHECK(evict(index) == (leaf_first ? b[2].key : a[1].key));
  }
}

TEST_CASE("a pinned block protects itself and, leaf-first, all blocks before it") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {eviction_policy::lru, true}, {storage_tier::dram});
  const auto a = prompt({1, 1, 1});
  use(index, a, 1);
  const auto last = index.find(a[2].key);
  index.pin(last);
  index.pin(last);
  index.unpin(last);
  CHECK(index.victim() == prefix_tree::none);
  CHECK(index.pinned() == 1);
  index.unpin(last);
  CHECK(evict(index) == a[2].key);
}

TEST_CASE("a parent that arrives after its children is protected by them") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {eviction_policy::lru, true}, {storage_tier::dram});
  const auto a = prompt({1, 1});
  index.insert(a[1].key, a[1].parent, 1, 5);
  CHECK(index.find(a[0].key) == prefix_tree::none);
  index.insert(a[0].key, a[0].parent, 0, 1);
  CHECK(evict(index) == a[1].key);
  CHECK(evict(index) == a[0].key);
  CHECK(tree.consistent());
}

TEST_CASE("among about equally cold blocks those leave first that lie elsewhere, too") {
  const auto alone = prompt({1, 1}), doubled = prompt({2, 2});
  const auto gone_after = [&](std::uint64_t age, std::uint32_t copy_age) {
    prefix_tree tree;
    auto& index = tree.open(storage_tier::ssd, {.copy_age = copy_age}, {storage_tier::dram});
    use(index, alone, 1);
    use(index, doubled, 20);
    for (const auto& n : doubled) index.set_elsewhere(index.find(n.key), true);
    CHECK(index.elsewhere() == 2);
    use(index, prompt({3}), 20 + age);
    const bool spares = index.victim_spares_another();
    const auto gone = evict(index);
    CHECK(spares == (gone == doubled[1].key));
    REQUIRE(tree.consistent());
    return gone;
  };
  CHECK(gone_after(20, 4) == doubled[1].key);
  CHECK(gone_after(5, 4) == alone[1].key);  // much warmer: it stays although it is elsewhere, too
  CHECK(gone_after(20, 1) == alone[1].key);
}

TEST_CASE("every policy agrees with its specification over random operations") {
  for (auto policy : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}) {
    for (bool leaf_first : {true, false}) {
      for (unsigned seed = 1; seed <= 3; ++seed) {
        CAPTURE(seed);
        CAPTURE(to_string(policy));
        CAPTURE(leaf_first);
        std::mt19937 random(seed);
        prefix_tree tree;
        auto& index = tree.open(storage_tier::ssd, {policy, leaf_first}, {storage_tier::dram});
        auto& above = tree.open(storage_tier::dram);
        reference model{{policy, leaf_first}, {}};
        const auto forget = [&](prefix_tree::handle h) {
          model.blocks.erase(tree.key(h));
          if (above.here(h)) above.erase(h);
          index.erase(h);
        };
        for (std::uint64_t now = 1; now <= 2000; ++now) {
          std::vector<int> choices;
          for (unsigned d = 0; d < 5; ++d) choices.push_back(static_cast<int>(random() % 3));
          const auto names = prompt(choices);
          const auto name = names[random() % 5];
          const auto known = model.blocks.find(name.key);
          const auto h = index.find(name.key);
          REQUIRE((known != model.blocks.end()) == (h != prefix_tree::none));
          switch (random() % 8) {
            case 0:
              index.insert(name.key, name.parent, name.depth, now);
              model.use(name, now);
              break;
            case 1: {
              std::vector<block_key> keys;
              for (const auto& n : names) keys.push_back(n.key);
              const auto to = name.depth + random() % (6 - name.depth);
              index.insert(std::span{keys}.first(to), name.depth, now);
              for (auto i = name.depth; i < to; ++i) model.use(names[i], now);
              break;
            }
            case 2:
              if (h == prefix_tree::none) break;
              index.pin(h);
              ++known->second.pins;
              break;
            case 3:
              if (h == prefix_tree::none) break;
              index.unpin(h);
              if (known->second.pins > 0) --known->second.pins;
              break;
            case 4:
              if (h == prefix_tree::none || random() % 4) break;
              forget(h);
              break;
            case 6:
              if (h == prefix_tree::none) break;
              known->second.copy = static_cast<copy_kind>(random() % 3);
              if (above.here(h)) above.erase(h);
              index.set_elsewhere(h, known->second.copy == copy_kind::elsewhere);
              if (known->second.copy == copy_kind::comes_again)
                above.insert(name.key, name.parent, name.depth, 0);
              CHECK(index.copy(h) == known->second.copy);
              break;
            case 7:  // in use still, which is no further use
              if (h == prefix_tree::none) break;
              tree.keep_warm(h, now);
              known->second.used = model.latest = now;
              break;
            case 5: {
              const auto* best = model.victim();
              REQUIRE((best != nullptr) == (index.victim() != prefix_tree::none));
              if (!best) break;
              // Equal ranks are equally good.
              const auto& chosen = model.blocks.at(tree.key(index.victim()));
              REQUIRE(model.candidate(chosen));
              REQUIRE(chosen.copy == best->copy);
              REQUIRE(model.rank(chosen) == model.rank(*best));
              forget(index.victim());
              break;
            }
          }
          REQUIRE(index.size() == model.blocks.size());
          if (now % 20 == 0) REQUIRE(tree.consistent());
        }
      }
    }
  }
}

TEST_CASE("a survey asks about every cold leaf, and an answer is good up to the next fork") {
  prefix_tree tree;
  auto& index = tree.open(storage_tier::ssd, {}, {storage_tier::dram});
  const auto one = prompt({1, 1, 1}), fork = prompt({1, 1, 2, 1});
  use(index, one, 1);
  use(index, fork, 2);
  std::vector<block_key> leaves{one.back().key, fork.back().key};
  for (int i = 0; i < 5000; ++i) {
    const auto single = prompt({10 + i});
    use(index, single, 3);
    leaves.push_back(single[0].key);
  }
  use(index, prompt({9000}), 100);
  const auto warm = prompt({9000})[0].key;

  copy_survey survey;
  std::vector<block_key> asked;
  const time_point now{};
  for (auto keys = survey.next(index, 0, now); !keys.empty(); keys = survey.next(index, 0, now)) {
    CHECK(keys.size() <= 512);
    asked.insert(asked.end(), keys.begin(), keys.end());
  }
  std::vector<block_key> found;
  for (std::size_t i = 0; i < asked.size(); i += 2) {
    found.push_back(asked[i]);
    // The lot is a block's before it, and the same for the leaf's own parent when that is the leaf.
    if (asked[i] == fork[3].key) CHECK(asked[i + 1] == fork[1].key);
    else if (asked[i] == one[2].key) CHECK(asked[i + 1] == one[1].key);
    else CHECK(asked[i + 1] == asked[i]);
  }
  std::ranges::sort(found);
  std::ranges::sort(leaves);
  CHECK(found == leaves);
  CHECK_FALSE(std::ranges::binary_search(found, warm));  // it stays whatever others have
  CHECK(survey.next(index, 1, now).size() > 0);          // something left: who comes next?
  while (!survey.next(index, 1, now).empty()) {
  }
  CHECK(survey.next(index, 1, now + std::chrono::seconds(6)).size() > 0);  // others' blocks come and go

  const auto kind = [&](const block_name& n) { return index.copy(index.find(n.key)); };
  copy_survey::answer(index, asked, std::vector{fork.back().key});
  CHECK(kind(fork[3]) == copy_kind::elsewhere);
  CHECK(kind(fork[2]) == copy_kind::elsewhere);
  CHECK(kind(fork[1]) == copy_kind::alone);  // of the other prompt, too
  CHECK(kind(one[2]) == copy_kind::alone);
  tree.open(storage_tier::dram).insert(one[2].key, one[2].parent, 2, 0);
  copy_survey::answer(
      index, std::vector{one[2].key, one[1].key, block_key{1, 2}, block_key{1, 2}, fork[3].key, fork[1].key},
      {});
  CHECK(kind(one[2]) == copy_kind::comes_again);
  CHECK(kind(fork[2]) == copy_kind::alone);
  CHECK(index.elsewhere() == 0);
  CHECK(tree.consistent());
  prefix_tree quiet;
  auto& told = quiet.open(storage_tier::ssd, {.copy_age = 1}, {storage_tier::dram});
  use(told, one, 1);
  CHECK(copy_survey{}.next(told, 0, now).empty());
}

TEST_CASE("the flat index keeps every key through growth and deletion") {
  std::mt19937_64 random(4);
  flat_index index;
  std::map<block_key, std::uint32_t> model;
  for (int step = 0; step < 50000; ++step) {
    // Few distinct and consecutive keys, so that runs collide and wrap around.
    const block_key key{0, random() % 700};
    if (random() % 2) {
      const auto value = static_cast<std::uint32_t>(random() % 1000);
      index.insert(key, value);
      model[key] = value;
    } else {
      REQUIRE(index.erase(key) == (model.erase(key) == 1));
    }
    REQUIRE(index.size() == model.size());
    const block_key other{0, random() % 700};
    const auto known = model.find(other);
    REQUIRE(index.find(other) == (known == model.end() ? flat_index::none : known->second));
  }
}

namespace {

/// A number is a key's value. Inserts and erases at random, and compares with what is known to be there.
void check_tags(const std::vector<block_key>& keys) {
  std::mt19937_64 random{17};
  tag_index index;
  const auto key_of = [&](std::uint32_t value) { return keys[value]; };
  std::vector<bool> there(keys.size());
  std::size_t count = 0;
  for (int step = 0; step < 50000; ++step) {
    const auto value = static_cast<std::uint32_t>(random() % keys.size());
    bool made = false;
    REQUIRE(index.find_or_insert(keys[value], key_of, [&](std::uint32_t) { return made = true, value; }) ==
            value);
    REQUIRE(made == !there[value]);
    if (there[value]) index.erase(tag_index::tag_of(keys[value]), value);
    there[value] = !there[value];
    count += there[value] ? 1u : ~std::size_t{0};
    REQUIRE(index.size() == count);
    const auto other = static_cast<std::uint32_t>(random() % keys.size());
    REQUIRE(index.find(keys[other], key_of) == (there[other] ? other : tag_index::none));
  }
}

}  // namespace

TEST_CASE("a table of tags holds what a map holds, though tags collide and the keys are elsewhere") {
  std::mt19937_64 random{19};
  std::vector<block_key> keys(700);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = {random() % 3, i / 2 * 0x100000000ull + i % 2};
  check_tags(keys);
}

TEST_CASE("a table of tags finds what spilled over full buckets, around its end, too") {
  std::mt19937_64 random{23};
  std::vector<block_key> keys;
  while (keys.size() < 400) {
    const block_key k{random(), random()};
    const auto place = tag_index::tag_of(k) >> 28;
    if (place == 0x0 || place == 0xF) keys.push_back(k);
  }
  check_tags(keys);
}
