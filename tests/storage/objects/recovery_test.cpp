#include <doctest/doctest.h>

#include "tests/storage/objects/recovery_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("directories, holders, connections and clients may be lost at any moment") {
  int recoveries = 0, stripes = 0, in_rooms = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    world w{seed, seed % 4 == 0};
    for (int i = 0; i < 1500; ++i) {
      CAPTURE(i);
      w.step();
      if (i % 100 == 0) REQUIRE(w.core->consistent());
    }
    w.settle();
    // Whatever must be there is.
    auto& c = w.clients[0];
    for (int k = 0; k < 12; ++k) {
      if (!c.session) c.session = w.connect();
      w.find(c);
      REQUIRE_FALSE(c.waits);
    }
    // After all have left and all is removed, no byte is held.
    for (auto& other : w.clients) w.lose_client(other);
    c.session = w.connect();
    c.waits = [](byte_reader&) {};
    w.send(c.session, op::remove_all, [](byte_writer& out) {
      out.put(std::uint8_t{1});
      out.put_text("");
    });
    w.settle();
    CHECK_FALSE(c.waits);
    w.now += 30s;
    w.core->tick(w.now);
    REQUIRE(w.core->consistent());
    const auto end = w.core->counts();
    CHECK(end.objects == 0);
    CHECK(end.free_bytes == end.total_bytes);
    recoveries += w.recoveries;
    stripes += w.stripes;
    in_rooms += w.in_rooms;
  }
  CHECK(recoveries > 300);
  CHECK(stripes > 100);
  CHECK(in_rooms > 100);
}

struct disk_histories {
  std::uint64_t served = 0, came_back = 0, stale = 0, demoted = 0, in_pieces = 0;
  int moved = 0;
};

/// @param hosts  of the directory: it may be on each of them.
static disk_histories play_with_disks(unsigned seeds, std::size_t hosts) {
  disk_histories out;
  auto& [served, came_back, stale, demoted, in_pieces, moved] = out;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    world w{seed, seed % 2 == 0, true, hosts};
    for (int i = 0; i < (hosts > 1 ? 4000 : 1500); ++i) {
      CAPTURE(i);
      w.step();
      if (i % 100 == 0) REQUIRE(w.core->consistent());
    }
    w.settle();
    auto& c = w.clients[0];
    w.lose_client(c);
    c.session = w.connect();
    for (int k = 0; k < 24; ++k) {
      w.find(c);
      w.settle();
      REQUIRE_FALSE(c.waits);
    }
    served += w.served_from_disk;
    came_back += w.came_back;
    in_pieces += w.in_pieces;
    moved += w.moved;
    stale += w.core->counts().disk_stale;
    demoted += w.core->counts().demoted;
    for (auto& other : w.clients) w.lose_client(other);
    c.session = w.connect();
    c.waits = [](byte_reader&) {};
    w.send(c.session, op::remove_all, [](byte_writer& out) {
      out.put(std::uint8_t{1});
      out.put_text("");
    });
    w.settle();
    w.now += 20s;
    w.settle();
    const auto end = w.core->counts();
    CHECK(w.core->consistent());
    CHECK(end.objects == 0);
    CHECK(end.free_bytes == end.total_bytes);
    CHECK(end.disk_bytes == 0);
    for (const auto& h : w.holders)
      if (h.disk) CHECK(h.disk->held.empty());
  }
  return out;
}

TEST_CASE("what lies on SSD comes back, and nothing that was removed or replaced while it was away") {
  const auto had = play_with_disks(120, 1);
  // The histories have all of it in them.
  CHECK(had.served > 150);
  CHECK(had.came_back > 300);
  CHECK(had.stale > 2);
  CHECK(had.in_pieces > 10);
  CHECK(had.demoted > 20);  // by the last directory of each
}

TEST_CASE("a directory on another host finds what lies in memory, and on SSDs that heard of all changes") {
  const auto had = play_with_disks(120, 3);
  CHECK(had.moved > 300);
  CHECK(had.served > 60);
  CHECK(had.came_back > 200);
}

TEST_CASE("a removal is answered when the holders of all replicas have heard of it") {
  world w{1, false};
  w.settle();
  auto& c = w.clients[0];
  c.session = w.connect();
  while (w.must_be.empty()) {
    w.step_client(c);
    w.write();
  }
  const auto k = w.must_be.begin()->first;
  for (auto& h : w.holders)
    while (!h.wire.empty()) w.hear(h);
  bool answered = false;
  c.waits = [&](byte_reader&) { answered = true; };
  w.send(c.session, op::remove, [&](byte_writer& out) {
    out.put(std::uint8_t{1});
    out.put(std::uint32_t{1});
    out.put_text(k);
  });
  CHECK_FALSE(answered);
  for (auto& h : w.holders) {
    if (!h.wire.empty())
      CHECK(h.wire.back().size() >= store_wire::urgent_bytes);  // wakes who takes little later
    while (!h.wire.empty()) w.hear(h);
  }
  CHECK(answered);
}

TEST_CASE(
    "an upsert that the directory's death cuts between two holders leaves the old value or the new one") {
  for (int told = 0; told < 6; ++told) {
    CAPTURE(told);
    world w{1, false};
    w.settle();
    auto& c = w.clients[0];
    c.session = w.connect();
    const auto reserve = [&](const std::string& key, const std::string& segment, bool replace) {
      put_policy policy;
      policy.replace = replace;
      policy.preferred = {segment};
      std::uint64_t ticket = 0;
      c.waits = [&](byte_reader& in) {
        in.get<std::uint32_t>();
        REQUIRE(in.get<std::int32_t>() == 0);
        ticket = in.get<std::uint64_t>();
      };
      w.send(c.session, op::reserve, [&](byte_writer& out) {
        store_wire::put_policy_to(out, policy);
        out.put(std::uint32_t{1});
        out.put_text(key);
        out.put(std::uint64_t{100});
        store_wire::put_ties(out, {});
      });
      return ticket;
    };
    const auto publish = [&](std::uint64_t first, std::uint64_t second) {
      w.send(c.session, op::publish, [&](byte_writer& out) {
        out.put(std::uint32_t{2});
        for (const auto ticket : {first, second}) {
          out.put(ticket);
          out.put(std::uint64_t{7});
        }
      });
    };
    publish(reserve("a", "segment-0", false), reserve("b", "segment-1", false));
    // Each goes to where the other was.
    const auto a = reserve("a", "segment-1", true), b = reserve("b", "segment-0", true);
    w.deliveries_left = told;
    publish(a, b);
    w.deliveries_left = std::numeric_limits<int>::max();
    w.lose_directory();
    c.session = w.connect();
    w.settle();
    for (const auto* key : {"a", "b"}) {
      std::int32_t code = -1;
      c.waits = [&](byte_reader& in) {
        in.get<std::uint32_t>();
        code = in.get<std::int32_t>();
      };
      w.send(c.session, op::find, [&](byte_writer& out) {
        out.put(std::uint32_t{1});
        out.put_text(key);
      });
      CHECK(code == 0);
    }
  }
}

TEST_CASE("questions about objects wait until all segments that belonged to the store are back, or late") {
  world w{2, false};
  w.settle();
  auto& c = w.clients[0];
  c.session = w.connect();
  while (w.must_be.size() < 3) {
    w.step_client(c);
    w.write();
  }
  w.lose_directory();
  c.session = w.connect();
  int answers = 0;
  c.waits = [&](byte_reader&) { ++answers; };
  w.send(c.session, op::find, [](byte_writer& out) {
    out.put(std::uint32_t{1});
    out.put_text("absent");
  });
  for (int i = 0; i < 2; ++i) {
    w.mount(w.holders[static_cast<std::size_t>(i)]);
    w.step_holder(w.holders[static_cast<std::size_t>(i)]);
  }
  w.now += 2s;
  w.core->tick(w.now);
  w.deliver();
  CHECK(answers == 0);
  SUBCASE("the last one comes") {
    w.mount(w.holders[2]);
    w.step_holder(w.holders[2]);
    w.core->tick(w.now);
    w.deliver();
    CHECK(answers == 1);
  }
  SUBCASE("it does not, and when it comes later what it holds counts no more") {
    w.now += 4s;
    w.core->tick(w.now);
    w.deliver();
    CHECK(answers == 1);
    const auto before = w.holders[2].life;
    w.mount(w.holders[2]);
    CHECK(w.holders[2].life == before + 1);
  }
}
