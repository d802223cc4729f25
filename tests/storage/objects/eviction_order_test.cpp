#include "storage/objects/table/eviction_order.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "storage/objects/table/object_table.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

using standing = eviction_order::standing;

eviction_order::handle offered(eviction_order& order, std::uint64_t name, double worth = 0,
                               std::uint32_t depth = 0) {
  const auto h = order.add(name, worth, depth);
  order.stand(h, standing::plain);
  return h;
}

void use(eviction_order& order, eviction_order::handle h, int times = 1) {
  for (int i = 0; i < times; ++i) order.use(h, true);
}

struct store {
  explicit store(eviction_policy rule, std::uint64_t objects) : table(options(rule)) {
    REQUIRE(table.mount("s", "h", objects * 64) != 0);
  }
  static object_table_options options(eviction_policy rule) {
    object_table_options o;
    o.lease = std::chrono::seconds(10);
    o.eviction = rule;
    o.lease = 1ms;
    o.one_use = {};
    o.high_watermark = 1;
    return o;
  }
  bool put(const std::string& key, const object_ties& ties = {}) {
    now += 2ms;
    const auto r = table.reserve(1, key, 64, {}, {}, now, ties);
    return r.code == store_code::ok && table.publish(1, r.ticket, 0, now) == store_code::ok;
  }
  bool there(const std::string& key) { return table.look(key, now).code == store_code::ok; }
  object_table table;
  time_point now{1h};
};

}  // namespace

TEST_CASE("each rule takes first what its name says") {
  const auto first = [](eviction_policy rule) {
    eviction_order order{rule};
    const auto old_and_used = offered(order, 1), old = offered(order, 2), fresh = offered(order, 3),
               deep = offered(order, 4, 0, 7);
    use(order, old_and_used, 5);
    use(order, old);
    static_cast<void>(fresh);
    static_cast<void>(deep);
    return order.victim();
  };
  CHECK(first(eviction_policy::lru) == 2);           // nobody used it since
  CHECK(first(eviction_policy::lfu) == 2);           // used once, and longer ago than the other
  CHECK(first(eviction_policy::length_aware) == 3);  // used once, and far from the start
}

TEST_CASE("what is held stays, what is soft goes after all others, and a parent after its children") {
  for (const auto rule : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware,
                          eviction_policy::cost_aware}) {
    eviction_order order{rule};
    const auto parent = offered(order, 1), child = offered(order, 2, 0, 1), other = offered(order, 3),
               soft = offered(order, 4);
    order.link(child, parent);
    order.link(parent, child);  // round in a circle: not heeded
    order.stand(soft, standing::soft);
    use(order, child, 9);
    order.stand(other, standing::held);
    CHECK(order.victim() == child);
    order.erase(child, true);
    CHECK(order.victim() == parent);
    order.erase(parent, true);
    CHECK(order.victim() == soft);
    order.erase(soft, true);
    CHECK(order.victim() == eviction_order::none);
    CHECK(order.consistent());
  }
}

TEST_CASE("a parent that is removed leaves its child behind as a first one") {
  eviction_order order{eviction_policy::lru};
  const auto parent = offered(order, 1), child = offered(order, 2, 0, 1);
  order.link(child, parent);
  order.erase(parent, false);
  CHECK(order.victim() == child);
  const auto next = offered(order, 3);  // not in the parent's place, whose child is still there
  CHECK(order.children(next) == 0);
  order.erase(child, true);
  CHECK(order.victim() == next);
  CHECK(order.consistent());
}

TEST_CASE("of two that nobody used for equally long the one that is cheaper to make goes first") {
  eviction_order order{eviction_policy::cost_aware};
  const auto cheap = offered(order, 2, 1.0), dear = offered(order, 1, 100.0);
  for (std::uint64_t other = 10; other < 200; ++other) order.stand(order.add(other, 10, 0), standing::held);
  CHECK(order.victim() == cheap);
  order.erase(cheap, true);
  CHECK(order.victim() == dear);
}

TEST_CASE("no object goes before what was put behind it, whatever the rule and the order of uses") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    store s{static_cast<eviction_policy>(seed % 4), 50 + random() % 50};
    std::map<std::string, std::string> parents;
    for (int i = 0; i < 600; ++i) {
      CAPTURE(i);
      const auto key = std::to_string(random() % 200);
      const auto parent = std::to_string(random() % 200);
      if (random() % 3 == 0) {
        s.table.find(key, s.now);
        continue;
      }
      const bool linked = parent != key && s.there(parent);
      if (s.there(key)) continue;
      object_ties ties;
      ties.parent = parent;
      ties.cost = static_cast<double>(random() % 10);
      if (!s.put(key, ties)) continue;
      parents.erase(key);
      if (linked && s.there(parent)) parents[key] = parent;
      for (const auto& [child, of] : parents)
        if (s.there(child)) REQUIRE(s.there(of));
      std::erase_if(parents, [&](const auto& p) { return !s.there(p.first); });
    }
    CHECK(s.table.consistent());
    CHECK(s.table.counts().evictions > 50);
  }
}

// Three of four requests are for something that nobody will ever want again; the others, which would fit,
// come round and round.
TEST_CASE("cost-aware eviction learns what is worth keeping, where least recently used keeps nothing") {
  const auto hits = [](eviction_policy rule) {
    store s{rule, 100};
    int found = 0;
    for (int i = 0; i < 60'000; ++i) {
      s.now += 2ms;
      const auto key = i % 4 != 0 ? "once-" + std::to_string(i) : "often-" + std::to_string(i / 4 % 80);
      if (s.table.find(key, s.now).code == store_code::ok) ++found;
      else s.put(key);
    }
    return found;
  };
  const auto lru = hits(eviction_policy::lru), aware = hits(eviction_policy::cost_aware);
  CAPTURE(lru);
  CAPTURE(aware);
  CHECK(lru == 0);
  CHECK(aware > 10'000);  // of 15,000
}

TEST_CASE("what replaces an object keeps its children, and a group goes as one") {
  store s{eviction_policy::lru, 4};
  REQUIRE(s.put("parent"));
  REQUIRE(s.put("child", {{}, "parent"}));
  s.now += 2ms;
  put_policy over;
  over.replace = true;
  const auto r = s.table.reserve(1, "parent", 64, over, {}, s.now);
  REQUIRE(r.code == store_code::ok);
  REQUIRE(s.table.publish(1, r.ticket, 0, s.now) == store_code::ok);
  REQUIRE(s.put("a"));
  REQUIRE(s.put("b"));
  REQUIRE(s.put("c"));
  CHECK_FALSE(s.there("child"));
  CHECK(s.there("parent"));
  CHECK(s.table.consistent());
}

TEST_CASE("the next directory knows what belongs to what, in whatever order it is told") {
  struct listener : object_journal {
    void reserved(std::uint32_t, const segment_record&) override {}
    void published(std::uint32_t, const segment_record& record, std::string_view key,
                   std::string_view group) override {
      records.push_back(record);
      records.back().key = key;
      records.back().group = group;
    }
    void freed(std::uint32_t, std::uint64_t, std::uint64_t, duration) override {}
    void erased(std::uint32_t, std::uint64_t, std::string_view) override {}
    void changed(std::string_view) override {}
    void save(std::uint32_t, const segment_record&, std::string_view, std::string_view,
              std::span<const replica_place>) override {}
    void load(std::uint32_t, std::uint64_t, std::span<const replica_place>) override {}
    std::vector<segment_record> records;
  };
  listener told;
  object_table first{store::options(eviction_policy::lru), &told};
  REQUIRE(first.mount("s", "h", 4 * 64) != 0);
  const time_point now{1h};
  const auto put = [&](std::string_view key, const object_ties& ties) {
    const auto r = first.reserve(1, key, 64, {}, {}, now, ties);
    REQUIRE(first.publish(1, r.ticket, 0, now) == store_code::ok);
  };
  put("a", {});
  put("b", {{}, "a", 1});
  put("c", {{}, "b", 2});
  // Places are claimed in their order, objects come in the reverse one.
  std::swap(told.records[0].offset, told.records[2].offset);
  std::reverse(told.records.begin(), told.records.end());
  object_table second{store::options(eviction_policy::lru)};
  REQUIRE(second.remount(7, "s", "h", 4 * 64));
  for (auto& r : told.records) REQUIRE(second.recover(7, std::move(r), now));
  const auto there = [&](std::string_view key) { return second.look(key, now).code == store_code::ok; };
  const auto one_more = [&](std::string_view key, std::uint64_t bytes) {
    return second.reserve(1, key, bytes, {}, {}, now + 1s).code == store_code::ok;
  };
  REQUIRE(one_more("d", 64));
  REQUIRE(one_more("e", 64));
  CHECK_FALSE(there("c"));
  CHECK(there("b"));
  REQUIRE(one_more("f", 64));
  CHECK_FALSE(there("b"));
  CHECK(there("a"));
  CHECK(second.consistent());
}
