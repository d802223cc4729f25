#include "storage/objects/object_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

struct world {
  explicit world(object_table_options options = {}) : table(std::move(options)) {}
  object_table table;
  time_point now{1h};

  store_code put(std::string_view key, std::uint64_t size = 1000, const put_policy& policy = {}) {
    const auto r = table.reserve(1, key, size, policy, {}, now);
    return r.code == store_code::ok ? table.publish(1, r.ticket, 42, now) : r.code;
  }
};

}  // namespace

TEST_CASE("nobody sees an object before it is published, and then it stays as it is") {
  world w;
  w.table.mount("a", "h", 1 * MiB);
  const auto r = w.table.reserve(1, "k", 1000, {}, {}, w.now);
  REQUIRE(r.code == store_code::ok);
  CHECK(w.table.find("k", w.now).code == store_code::not_found);
  CHECK_FALSE(w.table.exists("k", w.now));
  CHECK(w.put("k") == store_code::already_exists);
  CHECK(w.table.publish(2, r.ticket, 5, w.now) == store_code::not_found);  // another's ticket
  CHECK(w.table.publish(1, r.ticket, 5, w.now) == store_code::ok);
  const auto seen = w.table.find("k", w.now);
  CHECK(seen.size == 1000);
  CHECK(seen.checksum == 5);
  CHECK(seen.places == r.places);
  CHECK(w.put("k") == store_code::already_exists);
}

TEST_CASE("a look protects an object from removal until its lease has ended, force removes it at once") {
  world w;
  w.table.mount("a", "h", 1 * MiB);
  REQUIRE(w.put("k") == store_code::ok);
  REQUIRE(w.table.exists("k", w.now));
  CHECK(w.table.remove("k", false, w.now) == store_code::has_lease);
  CHECK(w.table.remove("k", false, w.now + 10s) == store_code::ok);
  REQUIRE(w.put("k") == store_code::ok);
  const auto old = w.table.find("k", w.now).places[0];
  CHECK(w.table.remove("k", true, w.now) == store_code::ok);
  CHECK(w.table.find("k", w.now).code == store_code::not_found);
  // Its bytes are not given to others while somebody may be reading them.
  REQUIRE(w.put("l") == store_code::ok);
  CHECK(w.table.find("l", w.now).places[0].offset != old.offset);
  CHECK(w.table.counts().quarantined_bytes == 1024);
  w.table.tick(w.now + 10s);
  CHECK(w.table.counts().quarantined_bytes == 0);
}

TEST_CASE("when a writer is lost its reservations end, and their bytes rest before others get them") {
  world w;
  w.table.mount("a", "h", 64 * KiB);
  REQUIRE(w.table.reserve(9, "k", 60'000, {}, {}, w.now).code == store_code::ok);
  w.table.end_session(9, w.now);
  CHECK(w.table.counts().reserved == 0);
  CHECK(w.put("k", 60'000) == store_code::no_space);
  CHECK(w.put("k", 100) == store_code::ok);
  w.table.tick(w.now + 10s);
  CHECK(w.put("l", 60'000) == store_code::ok);
  CHECK(w.table.consistent());
}

TEST_CASE(
    "the least recently used gives way, not what is leased or pinned hard, and what is pinned softly last") {
  world w;
  w.table.mount("a", "h", 10 * 64 * KiB);
  put_policy soft, hard;
  soft.soft_pin = true;
  hard.hard_pin = true;
  REQUIRE(w.put("hard", 64 * KiB, hard) == store_code::ok);
  REQUIRE(w.put("soft", 64 * KiB, soft) == store_code::ok);
  for (int i = 0; i < 8; ++i) REQUIRE(w.put("k" + std::to_string(i), 64 * KiB) == store_code::ok);
  REQUIRE(w.table.exists("k0", w.now));
  REQUIRE(w.put("n1", 64 * KiB) == store_code::ok);
  CHECK(w.table.look("k0", w.now).code == store_code::ok);
  CHECK(w.table.look("k1", w.now).code == store_code::not_found);
  for (int i = 2; i < 10; ++i) REQUIRE(w.put("m" + std::to_string(i), 64 * KiB) == store_code::ok);
  CHECK(w.table.look("soft", w.now).code == store_code::ok);
  CHECK(w.table.look("hard", w.now).code == store_code::ok);
  for (const auto* key : {"k0", "m5", "m6", "m7", "m8", "m9", "m4", "m3", "m2"}) w.table.exists(key, w.now);
  REQUIRE(w.put("last", 64 * KiB) == store_code::ok);  // nothing but the soft one is left
  CHECK(w.table.look("soft", w.now).code == store_code::not_found);
  CHECK(w.put("more", 64 * KiB) == store_code::ok);  // "last" itself
  w.table.exists("more", w.now);
  CHECK(w.put("none", 64 * KiB) == store_code::no_space);
  CHECK(w.table.remove("hard", false, w.now) == store_code::has_lease);
  CHECK(w.table.remove("hard", true, w.now) == store_code::ok);
  CHECK(w.table.consistent());
}

TEST_CASE("eviction begins above the high watermark and ends at the low one") {
  world w;
  w.table.mount("a", "h", 100 * 64 * KiB);
  for (int i = 0; i < 96; ++i) REQUIRE(w.put("k" + std::to_string(i), 64 * KiB) == store_code::ok);
  w.table.tick(w.now);
  CHECK(w.table.counts().objects == 90);
  CHECK(w.table.look("k5", w.now).code == store_code::not_found);
  CHECK(w.table.look("k6", w.now).code == store_code::ok);
}

TEST_CASE("an object larger than all segments is refused and costs no other its place") {
  world w;
  w.table.mount("a", "h", 1 * MiB);
  w.table.mount("b", "h", 1 * MiB);
  REQUIRE(w.put("k") == store_code::ok);
  CHECK(w.put("big", 2 * MiB + 1) == store_code::no_space);
  CHECK(w.table.look("k", w.now).code == store_code::ok);
}

TEST_CASE("what has outlived its time is not there") {
  world w;
  w.table.mount("a", "h", 1 * MiB);
  put_policy brief;
  brief.ttl = 5s;
  REQUIRE(w.put("k", 100, brief) == store_code::ok);
  CHECK(w.table.exists("k", w.now + 4s));
  CHECK_FALSE(w.table.exists("k", w.now + 5s));
  REQUIRE(w.put("k", 100, brief) == store_code::ok);
  w.table.tick(w.now + 5s);
  CHECK(w.table.counts().objects == 0);
  CHECK(w.table.counts().expired == 2);
}

TEST_CASE("replicas lie on distinct segments, other hosts first, and outlive one of them") {
  world w;
  const auto a = w.table.mount("a", "h", 1 * MiB);
  w.table.mount("b", "h", 1 * MiB);
  const auto c = w.table.mount("c", "other", 1 * MiB);
  CHECK(w.table.mount("c", "h", 1 * MiB) == 0);
  put_policy two, five;
  two.replicas = 2;
  two.preferred = {"a"};
  five.replicas = 5;
  REQUIRE(w.put("k", 1000, two) == store_code::ok);
  const auto places = w.table.look("k", w.now).places;
  REQUIRE(places.size() == 2);
  CHECK(places[0].segment == a);
  CHECK(places[1].segment == c);
  REQUIRE(w.put("all", 1000, five) == store_code::ok);
  CHECK(w.table.look("all", w.now).places.size() == 3);
  put_policy one;
  one.preferred = {"c"};
  REQUIRE(w.put("alone", 1000, one) == store_code::ok);
  w.table.unmount(c, w.now);
  CHECK(w.table.look("k", w.now).places.size() == 1);
  CHECK(w.table.look("all", w.now).places.size() == 2);
  CHECK(w.table.look("alone", w.now).code == store_code::not_found);
  CHECK(w.table.counts().lost == 1);
  CHECK(w.table.consistent());
}

TEST_CASE("a new empty segment gets more than its part, but not everything") {
  world w;
  for (const auto* name : {"a", "b", "c", "d"}) w.table.mount(name, "h", 64 * MiB);
  for (int i = 0; i < 1000; ++i) REQUIRE(w.put("k" + std::to_string(i), 128 * KiB) == store_code::ok);
  const auto fresh = w.table.mount("new", "h", 64 * MiB);
  int there = 0;
  for (int i = 0; i < 200; ++i) {
    const auto key = "n" + std::to_string(i);
    REQUIRE(w.put(key, 128 * KiB) == store_code::ok);
    there += w.table.look(key, w.now).places[0].segment == fresh;
  }
  CHECK(there > 40);
  CHECK(there < 120);
}

TEST_CASE("what cannot be an object is refused with its reason") {
  world w;
  CHECK(w.put("k") == store_code::no_space);  // no segment yet
  w.table.mount("a", "h", 1 * MiB);
  CHECK(w.put("") == store_code::invalid_key);
  CHECK(w.put(std::string(64 * KiB + 1, 'k')) == store_code::invalid_key);
  CHECK(w.put(std::string(64 * KiB, 'k')) == store_code::ok);
  CHECK(w.put("empty", 0) == store_code::invalid_parameters);
  put_policy none, many;
  none.replicas = 0;
  many.soft_pin = true;
  many.soft_pin_for = 25h;
  CHECK(w.put("k", 1, none) == store_code::invalid_parameters);
  CHECK(w.put("k", 1, many) == store_code::invalid_parameters);
}

TEST_CASE("what replaces an object is seen from its publication on, and who reads the old one may go on") {
  world w;
  w.table.mount("a", "h", 1 * MiB);
  REQUIRE(w.put("k", 1000) == store_code::ok);
  const auto old = w.table.find("k", w.now);
  put_policy over;
  over.replace = true;
  const auto r = w.table.reserve(1, "k", 3000, over, {}, w.now);
  REQUIRE(r.code == store_code::ok);
  CHECK(w.table.find("k", w.now).size == 1000);
  CHECK(w.put("k", 1000, over) == store_code::already_exists);  // one at a time
  CHECK(w.table.publish(1, r.ticket, 7, w.now) == store_code::ok);
  const auto now = w.table.find("k", w.now);
  CHECK(now.size == 3000);
  CHECK(now.checksum == 7);
  CHECK(w.table.counts().objects == 1);
  CHECK(w.table.counts().quarantined_bytes == 1024);  // the old one's bytes, as long as its lease lasts
  CHECK(now.places[0].offset != old.places[0].offset);
  CHECK(w.table.consistent());
  CHECK(w.put("fresh", 10, over) == store_code::ok);
  SUBCASE("one that was removed meanwhile is replaced by nothing worse") {
    const auto again = w.table.reserve(1, "k", 10, over, {}, w.now);
    REQUIRE(w.table.remove("k", true, w.now) == store_code::ok);
    CHECK(w.table.remove("k", true, w.now) == store_code::replica_not_ready);
    CHECK(w.put("k") == store_code::already_exists);
    CHECK(w.table.publish(1, again.ticket, 8, w.now) == store_code::ok);
    CHECK(w.table.find("k", w.now).size == 10);
  }
  SUBCASE("a writer that gives up, or is lost, leaves the old one as it was") {
    const auto again = w.table.reserve(1, "k", 10, over, {}, w.now);
    CHECK(w.table.revoke(1, again.ticket, w.now) == store_code::ok);
    static_cast<void>(w.table.reserve(2, "k", 10, over, {}, w.now));
    w.table.end_session(2, w.now);
    CHECK(w.table.find("k", w.now).size == 3000);
    CHECK(w.put("k", 20, over) == store_code::ok);
  }
  CHECK(w.table.consistent());
}

TEST_CASE("a group is leased together, and leaves together when room is wanted") {
  world w;
  w.table.mount("a", "h", 64 * 1000);
  const auto put = [&](std::string_view key, std::string_view group, const put_policy& policy = {}) {
    const auto r = w.table.reserve(1, key, 64 * 200, policy, {}, w.now, {group});
    REQUIRE(r.code == store_code::ok);
    REQUIRE(w.table.publish(1, r.ticket, 1, w.now) == store_code::ok);
  };
  put("first", "g");
  put("other", "");
  put("second", "g");
  SUBCASE("the oldest takes the rest of its group with it, though others are older than those") {
    put("third", "");
    put("fourth", "");
    put("new", "");
    CHECK_FALSE(w.table.exists("first", w.now));
    CHECK_FALSE(w.table.exists("second", w.now));
    CHECK(w.table.exists("other", w.now));
    CHECK(w.table.counts().evictions == 2);
  }
  SUBCASE("a look at one protects all") {
    REQUIRE(w.table.exists("second", w.now));
    CHECK(w.table.remove("first", false, w.now) == store_code::has_lease);
    CHECK(w.table.remove("other", false, w.now) == store_code::ok);
  }
  SUBCASE("what replaces a member belongs to the group") {
    put_policy over;
    over.replace = true;
    put("first", "", over);
    REQUIRE(w.table.exists("second", w.now));
    CHECK(w.table.remove("first", false, w.now) == store_code::has_lease);
  }
  CHECK(w.table.consistent());
}

TEST_CASE("an object that is moved stays what it is, and nobody makes way for it") {
  world w;
  const auto a = w.table.mount("a", "h", 64 * KiB), b = w.table.mount("b", "h", 64 * KiB);
  put_policy pinned;
  pinned.hard_pin = true;
  pinned.preferred = {"a"};
  const auto first = w.table.reserve(1, "k", 1000, pinned, {}, w.now, {"group"});
  REQUIRE(w.table.publish(1, first.ticket, 5, w.now) == store_code::ok);
  REQUIRE(w.table.drain("a", true));
  CHECK_FALSE(w.table.drain("c", true));
  CHECK(w.table.segments()[0].draining);
  put_policy move;
  move.move = true;
  move.replicas = 0;
  CHECK(w.table.reserve(1, "absent", 0, move, {}, w.now).code == store_code::not_found);
  const auto there = w.table.find("k", w.now).places;
  const auto again = w.table.reserve(1, "k", 0, move, {}, w.now);
  REQUIRE(again.code == store_code::ok);
  REQUIRE(again.places.size() == 1);
  CHECK(there[0].segment == a);
  CHECK(again.places[0].segment == b);
  CHECK(w.table.look("k", w.now).places == there);  // until the copy is there
  CHECK(w.table.publish(1, again.ticket, 5, w.now) == store_code::ok);
  CHECK(w.table.look("k", w.now).places == again.places);
  CHECK(w.table.look("k", w.now).size == 1000);
  CHECK(w.table.remove("k", false, w.now + 1h) == store_code::has_lease);  // pinned hard as before
  CHECK(w.table.counts().moved == 1);
  CHECK(w.table.counts().quarantined_bytes == 1024);  // somebody may be reading it where it was

  SUBCASE("what was copied wrongly, or removed meanwhile, is not published") {
    REQUIRE(w.table.drain("a", false));
    const auto wrong = w.table.reserve(1, "k", 0, move, {}, w.now);
    CHECK(w.table.publish(1, wrong.ticket, 6, w.now) == store_code::not_found);
    const auto late = w.table.reserve(1, "k", 0, move, {}, w.now);
    REQUIRE(w.table.remove("k", true, w.now) == store_code::ok);
    CHECK(w.table.publish(1, late.ticket, 5, w.now) == store_code::not_found);
    CHECK(w.table.find("k", w.now).code == store_code::not_found);
  }
  SUBCASE("nothing is evicted for it, nor for what fits nowhere but in a segment that is drained") {
    REQUIRE(w.put("other", 64'000) == store_code::ok);
    CHECK(w.table.reserve(1, "k", 0, move, {}, w.now).code == store_code::no_space);
    REQUIRE(w.table.drain("b", true));
    CHECK(w.put("third", 60'000) == store_code::no_space);
    CHECK(w.table.look("other", w.now).code == store_code::ok);
  }
  CHECK(w.table.consistent());
}

namespace {
std::set<std::string> hosts_of(const object_table& table, std::span<const replica_place> replica) {
  std::set<std::string> hosts;
  for (const auto& s : table.segments())
    for (const auto& p : replica)
      if (p.segment == s.id) hosts.insert(s.host);
  return hosts;
}
}  // namespace

TEST_CASE(
    "what no segment holds lies in stripes, each replica on hosts of its own, and goes with any stripe") {
  world w;
  std::vector<std::uint32_t> segments;
  for (const auto* name : {"a0", "a1", "b0", "b1"})
    segments.push_back(w.table.mount(name, std::string{name[0]}, 1 * MiB));
  put_policy two;
  two.replicas = 2;
  REQUIRE(w.put("k", 3 * MiB / 2, two) == store_code::ok);
  const auto k = w.table.find("k", w.now);
  const auto replicas = replicas_of(k.places, k.size);
  REQUIRE(replicas.size() == 2);
  CHECK(replicas[0].size() > 1);
  CHECK(hosts_of(w.table, replicas[0]).size() == 1);
  CHECK(hosts_of(w.table, replicas[0]) != hosts_of(w.table, replicas[1]));
  w.table.unmount(replicas[0].back().segment, w.now);
  const auto left = w.table.look("k", w.now);
  REQUIRE(replicas_of(left.places, left.size).size() == 1);
  CHECK(left.places == std::vector(replicas[1].begin(), replicas[1].end()));
  // What was left of the other replica rests as long as somebody may read it.
  CHECK(w.table.counts().quarantined_bytes > 0);
  CHECK(w.table.consistent());
  w.table.tick(w.now += 11s);
  CHECK(w.table.counts().quarantined_bytes == 0);
  w.table.unmount(left.places.front().segment, w.now);
  CHECK(w.table.look("k", w.now).code == store_code::not_found);
  CHECK(w.table.counts().lost == 1);
  CHECK(w.table.counts().free_bytes == w.table.counts().total_bytes);
}

TEST_CASE("an object is placed in the gaps of a fragmented segment before another one goes") {
  world w;
  w.table.mount("a", "h", 64 * 64 * KiB);
  for (int i = 0; i < 64; ++i) REQUIRE(w.put(std::to_string(i), 64 * KiB) == store_code::ok);
  for (int i = 0; i < 64; i += 2) REQUIRE(w.table.remove(std::to_string(i), false, w.now) == store_code::ok);
  REQUIRE(w.put("k", 32 * 64 * KiB - 5) == store_code::ok);
  CHECK(w.table.counts().evictions == 0);
  CHECK(w.table.look("k", w.now).places.size() == 32);
  CHECK(w.put("one more", 1) == store_code::ok);
  CHECK(w.table.counts().evictions == 1);
  CHECK(w.table.consistent());
}

TEST_CASE("a replica is added beside those that are there, or takes the place of one of them") {
  world w;
  const auto a = w.table.mount("a", "h", 1 * MiB), b = w.table.mount("b", "i", 1 * MiB);
  put_policy first;
  first.preferred = {"a"};
  REQUIRE(w.put("k", 1000, first) == store_code::ok);
  put_policy add;
  add.move = add.keep = add.exactly = true;
  add.preferred = {"b"};
  auto r = w.table.reserve(2, "k", 0, add, {}, w.now);
  REQUIRE(r.code == store_code::ok);
  const auto read = w.table.find("k", w.now);  // by somebody who goes on with the old place
  CHECK(w.table.publish(2, r.ticket, 42, w.now) == store_code::ok);
  CHECK(w.table.look("k", w.now).places ==
        std::vector<replica_place>{read.places[0], {b, r.places[0].offset, 1000}});
  CHECK(w.table.remove("k", false, w.now) == store_code::has_lease);
  add.preferred = {"a"};
  CHECK(w.table.reserve(2, "k", 0, add, {}, w.now).code == store_code::no_space);  // it is there
  w.table.mount("c", "j", 1 * MiB);
  add.preferred = {"c"};
  add.leaving = "nobody";
  CHECK(w.table.reserve(2, "k", 0, add, {}, w.now).code == store_code::segment_not_found);
  add.leaving = "a";
  r = w.table.reserve(2, "k", 0, add, {}, w.now);
  REQUIRE(r.code == store_code::ok);
  REQUIRE(w.table.publish(2, r.ticket, 42, w.now) == store_code::ok);
  const auto now = w.table.look("k", w.now).places;
  REQUIRE(now.size() == 2);
  CHECK(now[0].segment == b);
  CHECK(now[1].segment != a);
  CHECK(w.table.consistent());
}

TEST_CASE(
    "what is read often gets a replica, which goes when it is read no more, or when others need the room") {
  object_table_options options;
  options.hot_reads_per_s = 5;
  options.hot_share = 0.2;
  world w{options};
  w.table.mount("a", "h", 10 * MiB);
  w.table.mount("b", "i", 10 * MiB);
  put_policy there;
  there.preferred = {"a"};
  REQUIRE(w.put("k", 2 * MiB, there) == store_code::ok);
  REQUIRE(w.put("calm", 2 * MiB, there) == store_code::ok);
  std::vector<std::string> hot;
  for (int i = 0; i < 600 && hot.empty(); ++i) {
    w.now += 100ms;
    w.table.find("k", w.now);
    if (i % 10 == 0) w.table.find("calm", w.now);
    hot = w.table.take_hot();
  }
  REQUIRE(hot == std::vector<std::string>{"k"});
  put_policy add;
  add.move = add.keep = add.exactly = add.for_readers = true;
  add.preferred = {"b"};
  const auto r = w.table.reserve(2, "k", 0, add, {}, w.now);
  REQUIRE(w.table.publish(2, r.ticket, 42, w.now) == store_code::ok);
  CHECK(w.table.look("k", w.now).places.size() == 2);
  CHECK(w.table.counts().warmed == 1);
  SUBCASE("it is read no more") {
    w.table.tick(w.now += 5s);
    CHECK(w.table.look("k", w.now).places.size() == 2);
    w.table.tick(w.now += 60s);
    CHECK(w.table.look("k", w.now).places.size() == 1);
    CHECK(w.table.counts().cooled == 1);
  }
  SUBCASE("somebody needs the room") {
    w.now += 11s;  // no lease is left
    for (int i = 0; i < 8; ++i) REQUIRE(w.put(std::to_string(i), 2 * MiB) == store_code::ok);
    CHECK(w.table.counts().evictions == 0);
    CHECK(w.table.look("k", w.now).places.size() == 1);
  }
  SUBCASE("its budget is used up") {
    for (int i = 0; i < 600; ++i) w.table.find("calm", w.now += 10ms);
    CHECK(w.table.take_hot().empty() == (4 * MiB > 20 * MiB / 5));
  }
  CHECK(w.table.consistent());
}

TEST_CASE("the objects that are read most are known, however many others are read now and then") {
  world w;
  w.table.mount("a", "h", 64 * MiB);
  w.table.mount("b", "i", 64 * MiB);
  for (int i = 0; i < 10'000; ++i) REQUIRE(w.put("cold" + std::to_string(i)) == store_code::ok);
  put_policy twice;
  twice.replicas = 2;
  REQUIRE(w.put("warm", 500, twice) == store_code::ok);
  REQUIRE(w.put("hot", 600) == store_code::ok);
  CHECK(w.table.hottest(w.now).empty());
  for (int i = 0; i < 10'000; ++i) {  // 1000 reads a second: one half of them of two objects
    w.now += 1ms;
    w.table.find("cold" + std::to_string(i), w.now);
    if (i % 2 == 0) w.table.find(i % 8 == 0 ? "warm" : "hot", w.now);
  }
  const auto all = w.table.hottest(w.now);
  REQUIRE(all.size() <= object_table::hottest_max);
  REQUIRE(all.size() > 2);
  CHECK(all[0].key == "hot");
  CHECK(all[0].size == 600);
  CHECK(all[0].replicas == 1);
  CHECK(all[0].reads_per_s == doctest::Approx(375 * 0.5).epsilon(0.02));  // ten seconds are one half-life
  CHECK(all[1].key == "warm");
  CHECK(all[1].replicas == 2);
  CHECK(all[1].reads_per_s == doctest::Approx(125 * 0.5).epsilon(0.02));
  CHECK(all[2].reads_per_s < 1);
  // A moved object is the same one, one that is put again is not, and what is gone is not there.
  put_policy move;
  move.move = true;
  const auto r = w.table.reserve(2, "hot", 0, move, {}, w.now);
  REQUIRE(w.table.publish(2, r.ticket, 42, w.now) == store_code::ok);
  CHECK(w.table.hottest(w.now).front().key == "hot");
  REQUIRE(w.table.remove("hot", true, w.now) == store_code::ok);
  REQUIRE(w.put("hot") == store_code::ok);
  CHECK(w.table.hottest(w.now).front().key == "warm");
  w.table.find("hot", w.now);
  const auto again = w.table.hottest(w.now);
  CHECK(std::count_if(again.begin(), again.end(), [](const hot_object& o) { return o.key == "hot"; }) == 1);
  CHECK(w.table.hottest(w.now + 10min).empty());
}

TEST_CASE("replicas in memory are counted from the reservation until they are no object's any more") {
  world w;
  const auto a = w.table.mount("a", "h", 1 * MiB), b = w.table.mount("b", "i", 1 * MiB);
  const auto counted = [&] { return w.table.counts().replicas; };
  put_policy twice;
  twice.replicas = 2;
  REQUIRE(w.put("k", 1000, twice) == store_code::ok);
  const auto r = w.table.reserve(1, "l", 1000, twice, {}, w.now);
  CHECK(counted() == 4);
  w.table.revoke(1, r.ticket, w.now);
  CHECK(counted() == 2);
  REQUIRE(w.put("striped", 1'500'000) == store_code::ok);  // larger than any segment
  CHECK(counted() == 3);
  w.table.find("striped", w.now);
  REQUIRE(w.table.remove("striped", true, w.now) == store_code::ok);  // rests
  CHECK(counted() == 2);
  w.table.tick(w.now += 1min);
  CHECK(counted() == 2);
  w.table.find("k", w.now);
  CHECK(w.table.drop_replica("k", b, w.now));
  CHECK(counted() == 1);
  w.table.unmount(a, w.now);
  w.table.tick(w.now += 1min);
  CHECK(counted() == 0);
  CHECK(w.table.consistent());
}

// The workloads of the allocator's own test, where an object may lie in several gaps. What is given up is
// what was used longest ago, which is spread over the memory.
TEST_CASE(
    "nine tenths of the memory hold objects when one makes way, at any time and for objects of any size") {
  const std::vector<std::vector<std::uint64_t>> workloads{
      {160 * KiB}, {4 * KiB, 160 * KiB, 1 * MiB}, {1'474'560, 163'840, 36'864}, {}};
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    CAPTURE(i);
    std::mt19937_64 random{7 + i};
    object_table_options options;
    options.high_watermark = 1;  // nobody makes way but for want of room
    world w{options};
    w.table.mount("a", "h", 1 * GiB);
    std::vector<std::string> there;
    double least = 1, sum = 0;
    int times = 0;
    for (int step = 0; step < 20'000; ++step) {
      const auto& sizes = workloads[i];
      const auto size = sizes.empty() ? 4 * KiB + random() % (4 * MiB) : sizes[random() % sizes.size()];
      const auto before = w.table.counts();
      REQUIRE(w.put(std::to_string(step), size) == store_code::ok);
      there.push_back(std::to_string(step));
      // Some are removed out of their turn, and some are used again.
      if (random() % 8 == 0) w.table.remove(there[random() % there.size()], false, w.now);
      if (random() % 2 == 0) w.table.exists(there[random() % there.size()], w.now);
      w.now += 1s;
      if (w.table.counts().evictions == before.evictions) continue;
      const auto share = 1 - static_cast<double>(before.free_bytes) / static_cast<double>(before.total_bytes);
      least = std::min(least, share);
      sum += share;
      ++times;
    }
    MESSAGE("workload ", i, ": least utilisation when one made way ", least, ", on average ", sum / times);
    CHECK(least >= 0.9);
    CHECK(sum / times >= 0.97);
    CHECK(w.table.consistent());
  }
}

TEST_CASE(
    "room for an object without a key is seen by nobody, ends by itself, and rests before others get it") {
  world w;
  w.table.mount("a", "h", 1 * MiB);
  const auto free = w.table.counts().free_bytes;
  auto room = w.table.reserve_ahead(1, 4000, {}, {}, w.now);
  REQUIRE(room.code == store_code::ok);
  CHECK(w.table.reserve_ahead(1, 5000, {}, {}, w.now).code == store_code::no_space);  // more than a 256th
  CHECK(w.put("k", 10) == store_code::ok);
  CHECK(w.table.name(1, room.ticket, "k", w.now) == store_code::already_exists);
  CHECK(w.table.name(1, room.ticket, "", w.now) == store_code::invalid_key);
  CHECK(w.table.name(2, room.ticket, "j", w.now) == store_code::not_found);  // another's
  CHECK(w.table.name(1, room.ticket, "j", w.now) == store_code::ok);
  CHECK(w.table.name(1, room.ticket, "i", w.now) == store_code::not_found);  // it has a name
  CHECK(w.table.find("j", w.now).code == store_code::not_found);
  CHECK(w.put("j") == store_code::already_exists);
  CHECK(w.table.publish(1, room.ticket, 5, w.now) == store_code::ok);
  CHECK(w.table.find("j", w.now).checksum == 5);
  w.table.remove_if([](std::string_view) { return true; }, true, w.now);
  w.now += 10s;
  w.table.tick(w.now);
  CHECK(w.table.counts().free_bytes == free);

  room = w.table.reserve_ahead(1, 4000, {}, {}, w.now);
  w.table.tick(w.now + 1999ms);
  CHECK(w.table.counts().reserved == 1);
  w.now += 2s;
  w.table.tick(w.now);
  CHECK(w.table.counts().reserved == 0);
  CHECK(w.table.name(1, room.ticket, "late", w.now) == store_code::not_found);
  CHECK(w.table.counts().free_bytes < free);  // the writer may be at it
  w.table.tick(w.now + 10s);
  CHECK(w.table.counts().free_bytes == free);
}

TEST_CASE("an object that got its key late is a later value than those before it") {
  struct : object_journal {
    std::map<std::string, std::uint64_t> version;
    void reserved(std::uint32_t, const segment_record&) override {}
    void published(std::uint32_t, const segment_record& record, std::string_view key,
                   std::string_view) override {
      CHECK(version[std::string{key}] < record.version);
      version[std::string{key}] = record.version;
    }
    void freed(std::uint32_t, std::uint64_t, std::uint64_t, duration) override {}
    void erased(std::uint32_t, std::uint64_t, std::string_view) override {}
    void changed(std::string_view) override {}
    void save(std::uint32_t, const segment_record&, std::string_view, std::string_view,
              std::span<const replica_place>) override {}
    void load(std::uint32_t, std::uint64_t, std::span<const replica_place>) override {}
  } told;
  object_table table{{}, &told};
  const time_point now{1h};
  table.mount("a", "h", 1 * MiB);
  const auto room = table.reserve_ahead(1, 100, {}, {}, now);
  const auto other = table.reserve(2, "k", 100, {}, {}, now);
  REQUIRE(table.publish(2, other.ticket, 1, now) == store_code::ok);
  REQUIRE(table.remove("k", true, now) == store_code::ok);
  REQUIRE(table.name(1, room.ticket, "k", now) == store_code::ok);
  CHECK(table.publish(1, room.ticket, 2, now) == store_code::ok);
}
