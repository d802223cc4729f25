// Tables of several shards in one thread, with what they have in common. Their messages are delivered when a
// test says so, in orders that it draws: whatever comes late, no published object is lost without cause, no
// quota exceeded, no parent gone before its child, no group halved, no byte kept.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "storage/objects/table/object_table.hpp"
#include "storage/objects/terms/key_scope.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr auto lease = 10s;

struct shards {
  std::vector<std::unique_ptr<object_table>> tables;
  std::shared_ptr<shard_commons> commons;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<shard_message>> on_the_way;  // to, from
  time_point now{1h};

  explicit shards(std::uint32_t count, std::uint64_t bytes,
                  std::vector<std::pair<std::string, tenant_limit>> tenants = {}) {
    std::vector<tenant_limit> limits;
    for (const auto& [name, limit] : tenants) limits.push_back(limit);
    commons = std::make_shared<shard_commons>(count, limits);
    for (std::uint32_t i = 0; i < count; ++i) {
      object_table_options o;
      o.lease = std::chrono::seconds(10);
      o.lease = lease;
      o.shard = {i, count};
      o.tenants = tenants;
      o.commons = commons;
      tables.push_back(std::make_unique<object_table>(o));
      REQUIRE(tables.back()->mount("s", "h", bytes) != 0);
    }
  }
  object_table& of(std::string_view key) { return *tables[shard_of(key, commons->count())]; }
  /// A name that begins so, and is this shard's.
  std::string key_in(std::uint32_t shard, const std::string& begin) const {
    for (int i = 0;; ++i)
      if (auto key = begin + "#" + std::to_string(i); shard_of(key, commons->count()) == shard) return key;
  }
  store_code put(const std::string& key, std::uint64_t size, const object_ties& ties = {},
                 put_policy policy = {}) {
    const auto room = of(key).reserve(1, key, size, policy, {}, now, ties);
    const auto code = room.code == store_code::ok ? of(key).publish(1, room.ticket, size, now) : room.code;
    of(key).tell_others();
    return code;
  }
  /// As clients do: asks again as long as others make room.
  store_code put_patiently(const std::string& key, std::uint64_t size, const object_ties& ties = {}) {
    auto code = put(key, size, ties);
    for (int i = 0; i < 200 && code == store_code::busy; ++i) {
      now += 1ms;
      deliver_all();
      code = put(key, size, ties);
    }
    return code;
  }
  bool has(const std::string& key) { return of(key).look(key, now).code == store_code::ok; }
  bool is_found(const std::string& key) { return of(key).find(key, now).code == store_code::ok; }

  /// Those of one shard to another come in their order.
  template <class Choose>
  bool deliver_one(const Choose& choose) {
    for (std::uint32_t to = 0; to < tables.size(); ++to)
      for (auto& m : commons->take_messages(to)) on_the_way[{to, m.from}].push_back(std::move(m));
    std::erase_if(on_the_way, [](const auto& q) { return q.second.empty(); });
    if (on_the_way.empty()) return false;
    auto& [ends, queue] =
        *std::next(on_the_way.begin(), static_cast<std::ptrdiff_t>(choose(on_the_way.size())));
    const auto message = std::move(queue.front());
    queue.pop_front();
    tables[ends.first]->hear(message, now);
    tables[ends.first]->tell_others();
    return true;
  }
  void deliver_all() {
    while (deliver_one([](std::size_t) { return std::size_t{0}; })) {
    }
  }
  void pass(duration time) {
    now += time;
    for (auto& t : tables) t->tick(now);
    for (auto& t : tables) t->tell_others();
  }
  void check_empty() {
    pass(lease);
    for (auto& t : tables) t->end_session(1, now);
    for (auto& t : tables) t->remove_if([](std::string_view) { return true; }, true, now);
    pass(2 * lease);
    deliver_all();
    for (auto& t : tables) {
      REQUIRE(t->consistent());
      CHECK(t->counts().objects == 0);
      CHECK(t->counts().free_bytes == t->counts().total_bytes);
    }
    CHECK(commons->groups() == 0);
    CHECK(commons->links() == 0);
    for (std::uint32_t owner = 1; commons->bounds(owner); ++owner) CHECK(commons->used(owner) == quota_use{});
  }
};

const std::string red = all_of("red");

}  // namespace

TEST_CASE("all of a quota is there for whatever keys a tenant has") {
  shards s{3, 64 * MiB, {{"red", {10 * MiB, 100}}}};
  for (int i = 0; i < 10; ++i) CHECK(s.put(s.key_in(0, red + std::to_string(i)), 1 * MiB) == store_code::ok);
  CHECK(s.commons->used(1).bytes == 10 * MiB);
  CHECK(s.tables[0]->counts().evictions == 0);
  const auto before = s.tables[1]->tenant(1).counts.free_bytes;
  CHECK(before == 0);
  std::uint64_t quota = 0, free = 0, objects = 0;
  for (const auto& t : s.tables) {
    quota += t->tenant(1).limit.bytes;
    objects += t->tenant(1).limit.objects;
    free += t->tenant(1).counts.free_bytes;
  }
  CHECK(quota == 10 * MiB);
  CHECK(objects == 100);
  CHECK(free == 0);
  s.check_empty();
}

TEST_CASE("a shard that has nothing of a tenant's to give up lets others make room") {
  shards s{2, 64 * MiB, {{"red", {10 * MiB, 100}}}};
  for (int i = 0; i < 10; ++i)
    REQUIRE(s.put(s.key_in(0, red + std::to_string(i)), 1 * MiB) == store_code::ok);
  s.pass(lease);
  const auto other = s.key_in(1, red + "other");
  CHECK(s.put(other, 1 * MiB) == store_code::busy);
  CHECK(s.put(other, 1 * MiB) == store_code::busy);  // and is not asked for twice
  s.deliver_all();
  CHECK(s.put(other, 1 * MiB) == store_code::ok);
  CHECK(s.tables[0]->counts().evictions == 1);
  CHECK(s.commons->used(1).bytes == 10 * MiB);

  SUBCASE("and is refused where nothing of it may go") {
    for (int i = 0; i < 10; ++i) s.is_found(s.key_in(0, red + std::to_string(i)));
    REQUIRE(s.is_found(other));
    CHECK(s.put_patiently(s.key_in(1, red + "one more"), 1 * MiB) == store_code::quota_exceeded);
    CHECK(s.put(s.key_in(1, red + "one more"), 1 * MiB) == store_code::quota_exceeded);
  }
  SUBCASE("so that its objects share the quota in the end as their keys fall") {
    for (int i = 0; i < 200; ++i) {
      s.pass(1s);
      REQUIRE(s.put_patiently(red + "even " + std::to_string(i), 1 * MiB) == store_code::ok);
      REQUIRE(s.commons->used(1).bytes <= 10 * MiB);
    }
    CHECK(s.tables[0]->counts().objects >= 2);
    CHECK(s.tables[1]->counts().objects >= 2);
    CHECK(s.commons->used(1).bytes >= 9 * MiB);
  }
  s.check_empty();
}

TEST_CASE("what nobody has used for long goes first, in whatever shard it lies") {
  shards s{2, 64 * MiB, {{"red", {10 * MiB, 100}}}};
  for (int i = 0; i < 5; ++i) REQUIRE(s.put(s.key_in(0, red + std::to_string(i)), 1 * MiB) == store_code::ok);
  s.pass(1h);
  for (int i = 0; i < 5; ++i) REQUIRE(s.put(s.key_in(1, red + std::to_string(i)), 1 * MiB) == store_code::ok);
  s.pass(lease);
  for (int i = 5; i < 10; ++i)
    REQUIRE(s.put_patiently(s.key_in(1, red + std::to_string(i)), 1 * MiB) == store_code::ok);
  CHECK(s.tables[0]->counts().objects == 0);
  CHECK(s.tables[1]->counts().objects == 10);
  s.check_empty();
}

TEST_CASE("a lease on a member of a group holds those of other shards, at once") {
  shards s{2, 64 * MiB};
  const auto a = s.key_in(0, "a"), b = s.key_in(1, "b");
  REQUIRE(s.put(a, 1 * MiB, {"g"}) == store_code::ok);
  REQUIRE(s.put(b, 1 * MiB, {"g"}) == store_code::ok);
  REQUIRE(s.is_found(a));
  CHECK(s.of(b).remove(b, false, s.now) == store_code::has_lease);
  CHECK(s.of(b).remove_if([](std::string_view) { return true; }, false, s.now) == 0);
  // All of the other shard's memory is wanted: what the group protects does not go for it.
  CHECK(s.put(s.key_in(1, "large"), 64 * MiB) == store_code::no_space);
  CHECK(s.has(b));
  s.pass(2 * lease + 10ms);
  CHECK(s.of(b).remove(b, false, s.now) == store_code::ok);
  s.check_empty();
}

TEST_CASE("who gives up a member of a group gives up all of it, for all who ask in whatever shard") {
  for (const bool delivered : {false, true}) {
    CAPTURE(delivered);
    shards s{3, 64 * MiB};
    put_policy pinned, softly;
    pinned.hard_pin = softly.soft_pin = true;
    const auto a = s.key_in(0, "a"), b = s.key_in(1, "b"), c = s.key_in(2, "c"), hard = s.key_in(1, "h"),
               soft = s.key_in(2, "s");
    for (const auto& key : {a, b, c}) REQUIRE(s.put(key, 1 * MiB, {"g"}) == store_code::ok);
    REQUIRE(s.put(hard, 1 * MiB, {"g"}, pinned) == store_code::ok);
    REQUIRE(s.put(soft, 1 * MiB, {"g"}, softly) == store_code::ok);
    const auto written = s.of(b).reserve(1, s.key_in(1, "in the making"), 1 * MiB, {}, {}, s.now, {"g"});
    REQUIRE(s.put(s.key_in(0, "large"), 64 * MiB) == store_code::ok);
    CHECK_FALSE(s.has(a));
    const auto later = s.key_in(1, "later");
    REQUIRE(s.put(later, 1 * MiB, {"g"}) == store_code::ok);  // belongs to the group's next life
    REQUIRE(s.of(b).publish(1, written.ticket, 1, s.now) == store_code::ok);
    if (delivered) {
      s.deliver_all();
      CHECK(s.tables[2]->counts().objects == 1);
      CHECK(s.tables[2]->counts().free_bytes == 63 * MiB);
    }
    CHECK_FALSE(s.is_found(b));
    CHECK_FALSE(s.is_found(c));
    for (const auto& key : {hard, soft, later, s.key_in(1, "in the making")}) CHECK(s.is_found(key));
    s.deliver_all();
    for (const auto& key : {hard, soft, later, s.key_in(1, "in the making")}) CHECK(s.has(key));
    s.check_empty();
  }
}

TEST_CASE("a parent stays as long as it has a child, in whatever shard") {
  shards s{2, 64 * MiB};
  const auto parent = s.key_in(0, "parent"), child = s.key_in(1, "child"),
             grandchild = s.key_in(0, "grandchild");
  REQUIRE(s.put(parent, 16 * MiB) == store_code::ok);
  REQUIRE(s.put(child, 1 * MiB, {{}, parent}) == store_code::ok);
  REQUIRE(s.put(grandchild, 16 * MiB, {{}, child}) == store_code::ok);
  CHECK(s.commons->depth(XXH3_64bits(grandchild.data(), grandchild.size())) == 2);
  s.pass(1h);
  for (const auto* other : {"x", "y"}) REQUIRE(s.put(s.key_in(0, other), 16 * MiB) == store_code::ok);
  REQUIRE(s.put(s.key_in(0, "z"), 16 * MiB) == store_code::ok);
  CHECK(s.has(parent));
  CHECK_FALSE(s.has(grandchild));
  REQUIRE(s.of(child).remove(child, false, s.now) == store_code::ok);
  s.deliver_all();
  REQUIRE(s.put(s.key_in(0, "z2"), 16 * MiB) == store_code::ok);
  CHECK_FALSE(s.has(parent));
  s.check_empty();
}

TEST_CASE("the next directory's shards know again what goes over all of them") {
  shards s{2, 64 * MiB, {{"red", {10 * MiB, 100}}}};
  const auto a = s.key_in(0, red + "a"), b = s.key_in(1, red + "b"), c = s.key_in(1, red + "c");
  const auto hash = [](const std::string& key) { return XXH3_64bits(key.data(), key.size()); };
  const auto bring = [&](const std::string& key, std::uint32_t segment, std::uint64_t ticket,
                         std::uint64_t parent, const std::string& group) {
    segment_record r;
    r.ticket = r.version = ticket;
    r.size = r.object_size = 4 * MiB;
    r.published = true;
    r.key = key;
    r.parent = parent;
    r.depth = parent == 0 ? 0 : 1;
    r.group = group;
    REQUIRE(s.of(key).remount(segment, "back" + std::to_string(segment), "h", 4 * MiB));
    REQUIRE(s.of(key).recover(segment, std::move(r), s.now));
  };
  bring(b, 2, 1, hash(a), {});  // the child first
  bring(a, 1, 2, 0, red + "g");
  bring(c, 3, 3, 0, red + "g");
  for (auto& t : s.tables) t->end_recovery(s.now);
  for (auto& t : s.tables) t->tell_others();
  CHECK(s.commons->used(1).bytes == 12 * MiB);  // more than the quota is by now: something goes
  s.pass(lease);
  s.pass(lease);
  s.deliver_all();
  CHECK(s.commons->used(1).bytes <= 10 * MiB);
  CHECK((s.has(a) || !s.has(b)));
  CHECK(s.has(a) == s.has(c));
  s.check_empty();
}

TEST_CASE("chains that go round in a circle, over shards, keep nobody from the memory") {
  shards s{2, 64 * MiB};
  const auto a = s.key_in(0, "a"), b = s.key_in(1, "b");
  REQUIRE(s.put(a, 1 * MiB, {{}, b}) == store_code::ok);
  REQUIRE(s.put(b, 1 * MiB, {{}, a}) == store_code::ok);
  s.pass(1h);
  CHECK(s.put(s.key_in(0, "large"), 64 * MiB) == store_code::ok);
  CHECK(s.put(s.key_in(1, "large"), 64 * MiB) == store_code::ok);
  s.check_empty();
}

namespace {

struct known {
  std::uint64_t size = 0;
  std::string group, parent;
  bool hard = false;
  time_point leased_until{};
  std::uint64_t published = 0, seen = 0;  ///< at which step
};

/// Random work of many, and a model of what must be there.
struct commons_world {
  shards s;
  std::mt19937_64 random;
  std::map<std::string, known> there;  // a superset: eviction takes away, nothing adds
  std::uint64_t step_number = 0, delivered = 0, halved = 0, gone_parents = 0;
  tenant_limit limit;

  commons_world(unsigned seed, const tenant_limit& of_red)
      : s(2 + seed % 3, 8 * MiB, {{"red", of_red}}), random(seed), limit(of_red) {}

  std::uint64_t below(std::uint64_t n) { return random() % n; }
  std::string key() { return (below(2) ? red : std::string{}) + "key-" + std::to_string(below(120)); }
  static std::string whose(const std::string& key) { return key.front() == '\0' ? red : std::string{}; }

  void put() {
    const auto k = key();
    const bool chained = below(3) == 0;
    const auto group = !chained && below(2) ? whose(k) + "group-" + std::to_string(below(6)) : std::string{};
    std::string parent;
    if (chained && !there.empty()) {
      const auto at = std::next(there.begin(), static_cast<std::ptrdiff_t>(below(there.size())));
      if (at->first != k && at->second.group.empty() && whose(at->first) == whose(k)) parent = at->first;
    }
    put_policy policy;
    policy.hard_pin = below(40) == 0;
    const auto size = 1 + below(below(20) == 0 ? 200 * KiB : 60 * KiB);
    const bool parent_is_there = !parent.empty() && s.has(parent);
    const auto code = s.put(k, size, {group, parent}, policy);
    const bool and_still = parent_is_there && s.has(parent);
    if (code != store_code::ok) return;
    there[k] = {size,        group,      and_still ? parent : std::string{}, policy.hard_pin, {},
                step_number, step_number};
  }

  void find() {
    const auto k = key();
    const auto known = there.find(k);
    const auto view = s.of(k).find(k, s.now);
    if (view.code == store_code::ok) {
      REQUIRE(known != there.end());
      REQUIRE(view.size == known->second.size);
      REQUIRE(view.checksum == view.size);
      known->second.seen = step_number;
      for (auto& [other, o] : there)
        if (other == k || (!o.group.empty() && o.group == known->second.group && s.has(other)))
          o.leased_until = s.now + lease - 2ms;
      known->second.leased_until = s.now + lease;
      return;
    }
    if (known == there.end()) return;
    const auto gone = known->second;
    REQUIRE_FALSE(gone.hard);
    there.erase(known);
    REQUIRE(gone.leased_until <= s.now);
    check_gone(k, gone);
  }

  /// It made way: so did its group, and what was made of it before.
  void check_gone(const std::string& k, const known& gone) {
    for (const auto& [other, o] : there) {
      const bool of_group = !gone.group.empty() && o.group == gone.group && !o.hard;
      const bool child = o.parent == k;
      if ((!of_group && !child) || o.published >= gone.seen) continue;
      const bool is = s.of(other).exists(other, s.now);
      halved += of_group && is;
      gone_parents += child && is;
    }
  }

  void remove() {
    const auto k = key();
    const auto known = there.find(k);
    const bool is = s.has(k), force = below(3) == 0;
    const auto code = s.of(k).remove(k, force, s.now);
    if (code != store_code::ok) return;
    REQUIRE((known != there.end() && is));
    if (!force) REQUIRE(known->second.leased_until <= s.now);
    for (auto& [other, o] : there)
      if (o.parent == k) o.parent.clear();
    there.erase(known);
  }

  void step() {
    ++step_number;
    const auto what = below(20);
    if (what < 9) put();
    else if (what < 13) find();
    else if (what < 14) remove();
    else if (what < 15) s.pass(std::chrono::milliseconds(below(6000)));
    else delivered += s.deliver_one([&](std::size_t n) { return below(n); });
    for (auto& t : s.tables) t->tick(s.now);
    for (auto& t : s.tables) t->tell_others();
    REQUIRE(s.commons->used(1).bytes <= limit.bytes);
    REQUIRE(s.commons->used(1).objects <= limit.objects);
    std::uint64_t held = 0;  // as the segments have it
    for (const auto& t : s.tables)
      for (const auto& segment : t->segments(1)) held += segment.bytes - segment.free_bytes;
    REQUIRE(held == s.commons->used(1).bytes);
  }
};

}  // namespace

TEST_CASE(
    "whatever is done in whatever order, and however late shards hear of each other, all of them are one "
    "store") {
  std::uint64_t delivered = 0, evicted = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    commons_world w{seed, {3 * MiB, 60}};
    for (int i = 0; i < 2000; ++i) {
      CAPTURE(i);
      w.step();
      if (i % 100 != 0) continue;
      for (const auto& t : w.s.tables) REQUIRE(t->consistent());
    }
    CHECK(w.halved == 0);
    CHECK(w.gone_parents == 0);
    delivered += w.delivered;
    for (const auto& t : w.s.tables) evicted += t->counts().evictions;
    w.s.check_empty();
  }
  CHECK(delivered > 1000);
  CHECK(evicted > 1000);
}

TEST_CASE("shards in threads of their own keep one quota, and leave nothing behind") {
  constexpr std::uint32_t count = 3;
  const tenant_limit limit{3 * MiB, 60};
  shards s{count, 8 * MiB, {{"red", limit}}};
  std::atomic<std::uint64_t> stored{0}, over{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      auto& table = *s.tables[i];
      std::mt19937_64 random{i};
      auto now = s.now;
      for (int n = 0; n < 3000; ++n) {
        now += std::chrono::milliseconds(random() % 20);
        for (const auto& m : s.commons->take_messages(i)) table.hear(m, now);
        const auto key = s.key_in(i, (random() % 2 ? red : std::string{}) + std::to_string(random() % 100));
        const auto whose = key.front() == '\0' ? red : std::string{};
        const auto group = random() % 2 ? whose + "g" + std::to_string(random() % 5) : std::string{};
        const auto parent = random() % 2 ? whose + std::to_string(random() % 100) + "#0" : std::string{};
        if (random() % 3 == 0) {
          static_cast<void>(table.find(key, now));
        } else if (random() % 10 == 0) {
          static_cast<void>(table.remove(key, random() % 2 == 0, now));
        } else if (const auto room =
                       table.reserve(1, key, 1 + random() % (60 * KiB), {}, {}, now, {group, parent});
                   room.code == store_code::ok) {
          stored += table.publish(1, room.ticket, 1, now) == store_code::ok;
        }
        const auto used = s.commons->used(1);
        over += used.bytes > limit.bytes || used.objects > limit.objects;
        table.tick(now);
        table.tell_others();
      }
    });
  for (auto& t : threads) t.join();
  CHECK(over == 0);
  CHECK(stored > 100);
  s.now += 1h;
  s.check_empty();
}
