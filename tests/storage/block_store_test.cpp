#include "storage/block_store.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "tests/storage/block_maker.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;
using test::keys_of;
using test::prompt;

namespace {

constexpr time_point start{};
constexpr time_point in_time = start + 10s;

struct fixture {
  explicit fixture(std::size_t slots, block_store_options options = {})
      : memory(test::pool::make(slots, 64)), store(memory.slots, options) {}

  /// Reserves and commits the blocks `from` onwards of a prompt, as a prefill does.
  std::vector<commit_outcome> write(owner_id owner, const std::vector<block_name>& names,
                                    std::size_t from = 0) {
    const auto slots = store.reserve(owner, names.size() - from, in_time);
    REQUIRE(slots);
    std::vector<commit_outcome> outcomes;
    for (std::size_t i = from; i < names.size(); ++i)
      outcomes.push_back(store.commit(owner, (*slots)[i - from].index, names[i], 100 + i).value());
    return outcomes;
  }
  void check() {
    std::string why;
    const bool consistent = store.consistent(&why);
    CAPTURE(why);
    CHECK(consistent);
    CHECK(store.integrity().add_up());
  }

  test::pool memory;
  block_store store;
};

const owner_id first_owner{11}, second_owner{12};

}  // namespace

TEST_CASE("committed blocks are found by the next request, with their checksums") {
  fixture f(8);
  const auto a = prompt({1, 2, 3});
  f.write(first_owner, a);
  f.store.release_all(first_owner);
  CHECK(f.store.match(keys_of(prompt({1, 2, 9, 9}))).dram == 2);
  const auto hit = f.store.pin(keys_of(prompt({1, 2, 9, 9})), second_owner, in_time).value();
  REQUIRE(hit.blocks.size() == 2);
  CHECK(hit.blocks[1].key == a[1].key);
  CHECK(hit.blocks[1].checksum == 101);
  CHECK(hit.blocks[1].slot.address == f.memory.memory.base() + hit.blocks[1].slot.offset);
  CHECK(f.store.stats().hits_dram == 2);
  CHECK(f.store.stats().misses == 2);
  f.check();
}

TEST_CASE("reserved slots are invisible until they are committed") {
  fixture f(4);
  REQUIRE(f.store.reserve(first_owner, 2, in_time));
  CHECK(f.store.match(keys_of(prompt({1}))).total() == 0);
  CHECK(f.store.integrity().reserved == 2);
  f.store.release_all(first_owner);
  CHECK(f.store.integrity().free == 4);
  f.check();
}

TEST_CASE("a reservation is all or nothing, and says why it failed") {
  fixture f(4);
  REQUIRE(f.store.reserve(first_owner, 3, in_time));
  const auto refused = f.store.reserve(second_owner, 2, in_time);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ec::out_of_space);
  CHECK(refused.error().detail.find("1 of 4 free") != std::string::npos);
  CHECK(f.store.integrity().reserved == 3);
  CHECK(f.store.integrity().owners == 1);
  CHECK(f.store.reserve(owner_id{}, 1, in_time).error().code == ec::invalid_argument);
  f.check();
}

TEST_CASE("an impossible wish does not empty the cache") {
  fixture f(4);
  f.write(first_owner, prompt({1, 2}));
  f.store.release_all(first_owner);
  CHECK_FALSE(f.store.reserve(second_owner, 5, in_time));
  CHECK(f.store.match(keys_of(prompt({1, 2}))).dram == 2);
}

TEST_CASE("blocks in use are never evicted, others give way leaf first") {
  fixture f(4);
  f.write(first_owner, prompt({1, 2, 3, 4}));
  CHECK_FALSE(f.store.reserve(second_owner, 1, in_time));
  f.store.release_all(first_owner);
  REQUIRE(f.store.reserve(second_owner, 2, in_time));
  CHECK(f.store.match(keys_of(prompt({1, 2, 3, 4}))).dram == 2);
  CHECK(f.store.stats().evictions == 2);
  f.check();
}

TEST_CASE("the second to commit a key keeps its slot for itself until it lets go") {
  fixture f(4);
  const auto a = prompt({1});
  CHECK(f.write(first_owner, a)[0] == commit_outcome::published);
  CHECK(f.write(second_owner, a)[0] == commit_outcome::duplicate);
  CHECK(f.store.integrity().private_ == 1);
  f.store.release_all(second_owner);
  CHECK(f.store.integrity().private_ == 0);
  CHECK(f.store.match(keys_of(a)).dram == 1);
  f.check();
}

TEST_CASE("a block whose predecessor is nowhere stays private") {
  fixture f(4);
  const auto a = prompt({1, 2});
  const auto slot = f.store.reserve(first_owner, 1, in_time)->front();
  CHECK(f.store.commit(first_owner, slot.index, a[1], 0) == commit_outcome::orphan);
  CHECK_FALSE(f.store.find(a[1].key));
  f.store.release_all(first_owner);
  CHECK(f.store.integrity().free == 4);
  f.check();
}

TEST_CASE("commits that make no sense are refused and change nothing") {
  fixture f(4);
  const auto a = prompt({1, 2});
  const auto slots = f.store.reserve(first_owner, 3, in_time).value();
  CHECK(f.store.commit(second_owner, slots[0].index, a[0], 0).error().code == ec::not_found);
  CHECK(f.store.commit(first_owner, 77, a[0], 0).error().code == ec::not_found);
  CHECK(f.store.commit(owner_id{}, 3, a[0], 0).error().code == ec::not_found);
  REQUIRE(f.store.commit(first_owner, slots[0].index, a[0], 0) == commit_outcome::published);
  CHECK(f.store.commit(first_owner, slots[0].index, a[0], 0) ==
        commit_outcome::published);  // a repeated message
  CHECK(f.store.commit(first_owner, slots[0].index, a[1], 0).error().code == ec::not_found);
  auto wrong_depth = a[1];
  wrong_depth.depth = 5;
  CHECK(f.store.commit(first_owner, slots[1].index, wrong_depth, 0).error().code == ec::invalid_argument);
  CHECK(f.store.integrity().reserved == 2);
  f.check();
}

TEST_CASE("a lease that nobody renews frees everything its owner held") {
  fixture f(8);
  f.write(first_owner, prompt({1, 2}));
  REQUIRE(f.store.reserve(first_owner, 2, start + 1s));
  REQUIRE(f.store.pin(keys_of(prompt({1})), first_owner, in_time));
  REQUIRE(f.store.reserve(second_owner, 1, start + 20s));
  CHECK(f.store.expire(start + 10s).empty());
  CHECK(f.store.renew(first_owner, start + 15s));
  CHECK(f.store.expire(start + 12s).empty());
  CHECK(f.store.expire(start + 16s) == std::vector{first_owner});
  CHECK(f.store.integrity().reserved == 1);
  CHECK(f.store.integrity().pinned == 0);
  CHECK(f.store.integrity().owners == 1);
  CHECK_FALSE(f.store.renew(first_owner, in_time));
  f.check();
}

TEST_CASE("ending an owner twice, or a pin twice, is harmless") {
  fixture f(4);
  f.write(first_owner, prompt({1}));
  const auto pin = f.store.pin(keys_of(prompt({1})), second_owner, in_time)->id;
  f.store.release(pin);
  f.store.release(pin);
  f.store.release_all(first_owner);
  f.store.release_all(first_owner);
  f.store.release_all(owner_id{99});
  f.store.confirm(first_owner);
  f.store.fence(owner_id{99});
  CHECK(f.store.integrity().owners == 0);
  CHECK(f.store.integrity().pinned == 0);
  f.check();
}

TEST_CASE("slots let go one by one are free, and foreign ones are left alone") {
  fixture f(4);
  const auto mine = f.store.reserve(first_owner, 2, in_time).value();
  const auto theirs = f.store.reserve(second_owner, 1, in_time).value();
  const std::uint32_t some[] = {mine[0].index, theirs[0].index, 4000000};
  f.store.release(first_owner, some);
  CHECK(f.store.integrity().reserved == 2);
  CHECK(f.store.integrity().free == 2);
  f.check();
}

TEST_CASE("memory that a peer may still write is not reused before the peer confirms") {
  fixture f(4);
  const auto slots = f.store.reserve(first_owner, 3, in_time).value();
  f.store.fence(first_owner);
  REQUIRE(f.store.commit(first_owner, slots[0].index, prompt({1})[0], 0) == commit_outcome::published);
  f.store.release(first_owner, std::vector{slots[1].index});
  CHECK(f.store.integrity().quarantined == 1);
  SUBCASE("when the owner is released") { f.store.release_all(first_owner); }
  SUBCASE("when the owner's lease expires") { f.store.expire(in_time + 1s); }
  CHECK(f.store.integrity().quarantined == 2);
  CHECK(f.store.integrity().pinned == 1);
  CHECK_FALSE(f.store.reserve(second_owner, 2, in_time));
  CHECK(f.store.reserve(first_owner, 1, in_time).error().code == ec::cancelled);
  CHECK(f.store.pin(keys_of(prompt({1})), first_owner, in_time).error().code == ec::cancelled);
  f.check();
  f.store.confirm(first_owner);
  CHECK(f.store.integrity().quarantined == 0);
  CHECK(f.store.reserve(second_owner, 4, in_time));
  f.check();
}

TEST_CASE("an owner whose peer confirmed in time ends without quarantine") {
  fixture f(4);
  REQUIRE(f.store.reserve(first_owner, 2, in_time));
  f.store.fence(first_owner);
  f.store.confirm(first_owner);
  f.store.release_all(first_owner);
  CHECK(f.store.integrity().free == 4);
}

TEST_CASE("events tell what came and went, numbered without gaps, and a snapshot says the same") {
  fixture f(2);
  const auto a = prompt({1, 2}), b = prompt({5});
  f.write(first_owner, a);
  f.store.release_all(first_owner);
  f.write(second_owner, b);
  const auto events = f.store.drain_events();
  REQUIRE(events.size() == 4);
  for (std::size_t i = 0; i < events.size(); ++i) CHECK(events[i].sequence == i + 1);
  CHECK(events[1].what == block_change::stored);
  CHECK(events[1].name == a[1]);
  CHECK(events[2].what == block_change::removed);
  CHECK(events[2].name.key == a[1].key);
  CHECK(f.store.drain_events().empty());
  const auto all = f.store.snapshot();
  CHECK(all.sequence == 4);
  CHECK(all.blocks.size() == 2);
}

TEST_CASE("events that nobody fetches do not pile up, and the gap shows") {
  block_store_options options;
  options.max_pending_events = 4;
  fixture f(16, options);
  f.write(first_owner, prompt({1, 2, 3, 4, 5, 6}));
  const auto events = f.store.drain_events();
  CHECK(events.size() <= 4);
  CHECK(events.front().sequence > 1);
  CHECK(f.store.snapshot().sequence == events.back().sequence);
}

TEST_CASE("what the device has is announced as its own while neither memory nor disk has it") {
  fixture f(3);
  const auto a = prompt({1, 2}), b = prompt({5, 6});
  const auto news = [&] {
    std::vector<std::pair<block_change, storage_tier>> out;
    for (const auto& e : f.store.drain_events()) out.emplace_back(e.what, e.tier);
    return out;
  };
  using what = block_change;
  using told = std::vector<std::pair<what, storage_tier>>;
  auto& device = f.store.tree().open(storage_tier::device);
  for (const auto& name : a) device.insert(name.key, name.parent, name.depth, 0);
  device.insert(a[1].key, a[1].parent, 1, 0);
  CHECK(news() == told(2, {what::stored, storage_tier::device}));
  CHECK(f.store.snapshot().blocks.size() == 2);
  CHECK(f.store.match(keys_of(a)).total() == 0);
  f.write(first_owner, a);
  f.store.release_all(first_owner);
  CHECK(news() == told(2, {what::stored, storage_tier::dram}));
  CHECK(f.store.snapshot().blocks.size() == 2);
  device.erase(device.find(a[0].key));
  CHECK(news().empty());
  f.write(second_owner, b);  // memory has no room for both
  CHECK(news() == told{{what::moved, storage_tier::device},
                       {what::stored, storage_tier::dram},
                       {what::stored, storage_tier::dram}});
  device.erase(device.find(a[1].key));
  CHECK(news() == told{{what::removed, storage_tier::device}});
  f.check();
}

TEST_CASE("a snapshot lists parents before children") {
  fixture f(64);
  for (int i = 0; i < 8; ++i) {
    f.write(first_owner, prompt({1, i, i, i}));
    f.store.release_all(first_owner);
  }
  std::set<block_key> seen;
  for (const auto& e : f.store.snapshot().blocks) {
    if (e.name.depth > 0) CHECK(seen.contains(e.name.parent));
    seen.insert(e.name.key);
  }
}

TEST_CASE("random operations never leak, never evict what is held, never make a hole") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    block_store_options options;
    options.eviction.policy = static_cast<eviction_policy>(seed % 3);
    fixture f(24, options);
    time_point now = start;
    std::map<std::uint32_t, owner_id> fenced_slots;  // must not be handed out
    std::set<owner_id> fenced, ended;                // ended: fenced, and nobody has confirmed it yet
    std::map<owner_id, std::map<std::uint32_t, block_key>> held;  // published slots under a hold
    std::map<pin_id, std::pair<owner_id, std::vector<pinned_block>>> pins;
    std::map<owner_id, std::set<std::uint32_t>> reserved;
    std::uint64_t next_owner = 1;
    std::vector<owner_id> owners;
    std::map<block_key, storage_tier> announced;
    const auto forget = [&](owner_id o) {
      if (fenced.contains(o)) {
        ended.insert(o);
        for (auto s : reserved[o]) fenced_slots[s] = o;
        for (auto& [s, k] : held[o]) fenced_slots[s] = o;
      }
      reserved.erase(o);
      held.erase(o);
      std::erase_if(pins, [&](const auto& p) { return p.second.first == o; });
      std::erase(owners, o);
    };
    for (int step = 0; step < 3000; ++step) {
      now += std::chrono::milliseconds(below(200));
      if (owners.empty() || below(8) == 0) owners.push_back(owner_id{next_owner++});
      const owner_id o = owners[static_cast<std::size_t>(below(static_cast<unsigned>(owners.size())))];
      const auto names = prompt({below(2), below(2), below(2), below(2)});
      switch (below(9)) {
        case 0:
        case 1: {
          const auto slots = f.store.reserve(o, static_cast<std::size_t>(below(5)), now + 3s);
          if (!slots) break;
          for (const auto& s : *slots) {
            REQUIRE_FALSE(fenced_slots.contains(s.index));
            for (const auto& [other, mine] : reserved) REQUIRE_FALSE(mine.contains(s.index));
            for (const auto& [other, mine] : held) REQUIRE_FALSE(mine.contains(s.index));
            reserved[o].insert(s.index);
          }
          break;
        }
        case 2:
        case 3: {
          if (reserved[o].empty()) break;
          const auto slot = *reserved[o].begin();
          const auto& name = names[static_cast<std::size_t>(below(4))];
          const auto outcome = f.store.commit(o, slot, name, name.key.low);
          if (!outcome) break;  // it was private
          if (*outcome == commit_outcome::published) {
            held[o][slot] = name.key;
            reserved[o].erase(slot);
          }
          break;
        }
        case 4: {
          const auto hit = f.store.pin(keys_of(names), o, now + 3s);
          if (hit && hit->id) pins[hit->id] = {o, hit->blocks};
          break;
        }
        case 5:
          if (!pins.empty()) {
            f.store.release(pins.begin()->first);
            pins.erase(pins.begin());
          }
          break;
        case 6:
          f.store.release_all(o);
          forget(o);
          break;
        case 7:
          if (below(4) == 0 && !reserved[o].empty()) {
            f.store.fence(o);
            fenced.insert(o);
          } else {
            f.store.renew(o, now + 3s);
          }
          break;
        case 8: {
          for (const auto dead : f.store.expire(now)) forget(dead);
          if (below(3)) break;
          for (const auto dead : std::exchange(ended, {})) {
            f.store.confirm(dead);
            std::erase_if(fenced_slots, [&](const auto& p) { return p.second == dead; });
          }
          break;
        }
      }
      for (const auto& e : f.store.drain_events()) {
        if (e.what == block_change::removed) {
          REQUIRE(announced.erase(e.name.key) == 1);
        } else {
          REQUIRE(announced.emplace(e.name.key, e.tier).second);
        }
      }
      std::string why;
      if (!f.store.consistent(&why)) FAIL_CHECK("step " << step << ": " << why);
      REQUIRE(f.store.integrity().add_up());
      for (const auto& [owner, slots] : held)
        for (const auto& [slot, key] : slots) REQUIRE(f.store.find(key)->slot == slot);
      for (const auto& [id, p] : pins)
        for (const auto& b : p.second) REQUIRE(f.store.find(b.key)->slot == b.slot.index);
      std::size_t count = 0;
      f.store.for_each([&](const auto& e) {
        ++count;
        REQUIRE(announced.contains(e.name.key));
        if (e.name.depth > 0) REQUIRE(f.store.find(e.name.parent));
      });
      REQUIRE(count == announced.size());
    }
    for (const auto o : std::vector(owners)) {
      f.store.release_all(o);
      forget(o);
    }
    for (const auto o : ended) f.store.confirm(o);
    CHECK(f.store.integrity().owners == 0);
    CHECK(f.store.integrity().pins == 0);
    CHECK(f.store.integrity().pinned == 0);
    CHECK(f.store.integrity().free + f.store.integrity().committed == 24);
  }
}
