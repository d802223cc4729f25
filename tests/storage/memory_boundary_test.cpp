#include "storage/memory_boundary.hpp"

#include <doctest/doctest.h>

#include <list>
#include <random>
#include <unordered_map>

#include "storage/use_clock.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;
using side = memory_boundary::side;

namespace {

/// One of the two, in slabs of so many things, least recently used first.
struct lru_side {
  std::uint64_t own = 0, withheld = 0, shared = 0;
  std::list<std::pair<std::uint64_t, time_point>> order;  // coldest first
  std::unordered_map<std::uint64_t, decltype(order)::iterator> at;
  std::uint64_t taken = 0, hits = 0, asked = 0;
  bool stuck = false;  ///< all is pinned

  std::uint64_t room() const { return own + shared - withheld; }
  void use(std::uint64_t what, time_point now) {
    ++asked;
    if (const auto found = at.find(what); found != at.end()) {
      ++hits;
      order.erase(found->second);
    } else {
      ++taken;
    }
    order.emplace_back(what, now);
    at[what] = std::prev(order.end());
    while (order.size() > room()) drop();
  }
  void drop() {
    at.erase(order.front().first);
    order.pop_front();
  }
  boundary_report told(std::uint64_t wanted, time_point now) {
    if (wanted < withheld || !stuck || shared + own - order.size() >= wanted) withheld = wanted;
    while (order.size() > room()) drop();
    boundary_report r{withheld, room(), room() - order.size(), taken, {}};
    if (!order.empty() && !stuck) r.coldest = now - order.front().second;
    return r;
  }
};

struct world {
  explicit world(std::uint64_t own, std::uint64_t shared, std::uint64_t slab) : boundary(shared, slab) {
    for (auto* const s : {&blocks, &objects}) {
      s->own = own;
      s->shared = shared;
    }
    objects.withheld = shared;
  }
  void look(time_point now) {
    for (int i = 0; i < 16; ++i) {
      const auto o = objects.told(boundary.withheld_from(side::objects), now);
      const auto b = blocks.told(boundary.withheld_from(side::blocks), now);
      const bool again = boundary.look(b, o, now);
      REQUIRE(boundary.has(side::blocks) + boundary.has(side::objects) <= boundary.shared());
      REQUIRE(blocks.room() + objects.room() <= blocks.own + objects.own + boundary.shared());
      REQUIRE(blocks.room() >= blocks.own);
      REQUIRE(objects.room() >= objects.own);
      if (!again) break;
    }
  }
  std::uint64_t moves() const { return boundary.moved_to(side::blocks) + boundary.moved_to(side::objects); }
  memory_boundary boundary;
  lru_side blocks, objects;
};

constexpr time_point boundary_start{std::chrono::hours(1)};

}  // namespace

TEST_CASE("memory goes to where what is given up is warmer, stays there, and comes back") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    world w{100, 1600, 25};
    auto now = boundary_start;
    const auto run = [&](int looks, std::uint64_t block_set, int block_uses, std::uint64_t object_set,
                         int object_uses) {
      for (int i = 0; i < looks; ++i) {
        for (int n = 0; n < block_uses; ++n) w.blocks.use(random() % block_set, now += 1us);
        for (int n = 0; n < object_uses; ++n) w.objects.use(random() % object_set, now += 1us);
        w.look(now += 250ms);
      }
    };
    run(200, 100'000, 5, 1200, 200);  // few blocks, each once; objects that are used again and again
    CHECK(w.objects.room() >= 1200);
    const auto settled = w.moves();
    run(400, 100'000, 5, 1200, 200);
    CHECK(w.moves() <= settled + 4);
    run(400, 1200, 200, 100'000, 5);
    CHECK(w.blocks.room() >= 1150);
  }
}

TEST_CASE("two loads that do not change are divided once, not again and again") {
  for (std::uint64_t seed = 11; seed < 41; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    world w{50 + random() % 100, 64 * 20, 20};
    const auto block_set = 500 + random() % 3000, object_set = 500 + random() % 3000;
    const auto block_uses = 20 + random() % 100, object_uses = 20 + random() % 100;
    auto now = boundary_start;
    std::uint64_t settled = 0;
    for (int i = 0; i < 4000; ++i) {
      if (i == 2000) settled = w.moves();
      for (std::uint64_t n = 0; n < block_uses; ++n) w.blocks.use(random() % block_set, now += 1us);
      for (std::uint64_t n = 0; n < object_uses; ++n) w.objects.use(random() % object_set, now += 1us);
      w.look(now += 250ms);
    }
    CHECK(w.moves() - settled <= 20);  // in 500 s
    // Where both give something up, it is about equally old; else the one that does has all that the other
    // does not need.
    const auto b = w.blocks.told(w.boundary.withheld_from(side::blocks), now);
    const auto o = w.objects.told(w.boundary.withheld_from(side::objects), now);
    if (b.idle_bytes == 0 && o.idle_bytes == 0 && b.coldest && o.coldest &&
        w.boundary.has(side::blocks) >= 20 && w.boundary.has(side::objects) >= 20) {
      const auto ratio =
          std::chrono::duration<double>(*b.coldest) / std::chrono::duration<double>(*o.coldest);
      CHECK(ratio > 0.6);
      CHECK(ratio < 1.7);
    }
  }
}

TEST_CASE("what cannot be given is not waited for without end, and nobody has less for it") {
  world w{100, 1000, 100};
  auto now = boundary_start;
  for (std::uint64_t i = 0; i < 1100; ++i) w.blocks.use(i, now += 1ms);
  w.blocks.stuck = true;
  w.look(now);
  for (std::uint64_t i = 0; i < 200; ++i) w.objects.use(i, now += 1ms);
  // Blocks have a slab idle once, when all are pinned: the one before counts as asked.
  w.look(now);
  CHECK_FALSE(w.boundary.in_flight());  // nothing of the blocks may go, so nothing is asked for
  w.blocks.stuck = false;
  for (std::uint64_t i = 200; i < 400; ++i) w.objects.use(i, now += 1ms);
  boundary_report objects = w.objects.told(w.boundary.withheld_from(side::objects), now);
  boundary_report blocks = w.blocks.told(w.boundary.withheld_from(side::blocks), now);
  REQUIRE(w.boundary.look(blocks, objects, now));
  CHECK(w.boundary.in_flight());
  CHECK(w.boundary.withheld_from(side::blocks) == 100);
  CHECK(w.boundary.withheld_from(side::objects) == 1000);  // it has not come yet
  CHECK_FALSE(w.boundary.look(blocks, objects, now + memory_boundary::patience - 1ms));
  CHECK(w.boundary.look(blocks, objects, now + memory_boundary::patience));
  CHECK_FALSE(w.boundary.in_flight());
  CHECK(w.boundary.has(side::blocks) == 1000);
  CHECK(w.moves() == 0);
}

TEST_CASE("a slab is a sixty-fourth in whole huge pages, within bounds") {
  CHECK(memory_boundary::slab_for(4 * MiB) == 2 * MiB);
  CHECK(memory_boundary::slab_for(1 * GiB) == 16 * MiB);
  CHECK(memory_boundary::slab_for(1024 * GiB) == 256 * MiB);
}

TEST_CASE("ages of uses are known by the second lately, and about right long ago") {
  use_clock clock;
  auto now = boundary_start;
  for (std::uint64_t i = 0; i < 20'000; ++i) clock.note(10 * i, now = boundary_start + i * 1s);
  CHECK(clock.age(10 * 19'999, now) == 0s);
  CHECK(clock.age(10 * 19'999 + 1, now) == 0s);
  CHECK(clock.age(10 * 19'990, now) == 9s);
  const auto old = clock.age(10 * 1000, now);
  CHECK(old <= 18'999s);
  CHECK(old >= 18'000s);
}
