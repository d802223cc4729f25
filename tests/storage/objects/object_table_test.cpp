// The table of objects: what is seen of an object and when, and what makes way.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>

#include "tests/storage/objects/object_table_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

TEST_CASE("nobody sees an object before it is published, and then it stays as it is") {
  table_world w;
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
  table_world w;
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
  table_world w;
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
  table_world w;
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
  table_world w;
  w.table.mount("a", "h", 100 * 64 * KiB);
  for (int i = 0; i < 96; ++i) REQUIRE(w.put("k" + std::to_string(i), 64 * KiB) == store_code::ok);
  w.table.tick(w.now);
  CHECK(w.table.counts().objects == 90);
  CHECK(w.table.look("k5", w.now).code == store_code::not_found);
  CHECK(w.table.look("k6", w.now).code == store_code::ok);
}

TEST_CASE("an object larger than all segments is refused and costs no other its place") {
  table_world w;
  w.table.mount("a", "h", 1 * MiB);
  w.table.mount("b", "h", 1 * MiB);
  REQUIRE(w.put("k") == store_code::ok);
  CHECK(w.put("big", 2 * MiB + 1) == store_code::no_space);
  CHECK(w.table.look("k", w.now).code == store_code::ok);
}

TEST_CASE("what has outlived its time is not there") {
  table_world w;
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
  table_world w;
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
  table_world w;
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
  table_world w;
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
  table_world w;
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
  table_world w;
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
  table_world w;
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

TEST_CASE(
    "room for an object without a key is seen by nobody, ends by itself, and rests before others get it") {
  table_world w;
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
