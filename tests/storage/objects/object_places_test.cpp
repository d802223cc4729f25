// Where the table of objects puts them: in one run, in gaps or in stripes, once or several times, and how
// full that makes the memory.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/storage/objects/object_table_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

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
  table_world w;
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
  table_world w;
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
  table_world w;
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
  options.lease = std::chrono::seconds(10);
  options.hot_reads_per_s = 5;
  options.hot_share = 0.2;
  table_world w{options};
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
  table_world w;
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
  REQUIRE(all.size() <= hottest_objects_max);
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
  table_world w;
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
    options.lease = std::chrono::seconds(10);
    options.high_watermark = 1;  // nobody makes way but for want of room
    table_world w{options};
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
