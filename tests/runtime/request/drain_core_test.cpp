// When a process that was told to stop leaves: nothing that could have ended is cut, and nothing keeps it for ever.

#include "runtime/request/drain_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr auto step = 20ms;

struct drain_world {
  explicit drain_world(drain_parts parts, duration limit = 30s) : core(parts, limit) { begin(); }
  void begin() {
    core.begin(now);
    take();
  }
  void take() {
    for (const auto order : core.take_orders()) orders.push_back(order);
  }
  void look() {
    now += step;
    core.look(facts, now);
    take();
  }
  /// @returns how long it took until `order`, if it came within a minute.
  std::optional<duration> until(drain_order order) {
    const auto from = now;
    while (!has(order) && now - from < 60s) look();
    return has(order) ? std::optional{now - from} : std::nullopt;
  }
  bool has(drain_order order) const { return std::ranges::find(orders, order) != orders.end(); }

  time_point now = time_point{} + 1h;
  const time_point told = now;
  drain_facts facts;
  drain_core core;
  std::vector<drain_order> orders;
};

}  // namespace

TEST_CASE(
    "a gateway leaves when its clients have their answers and open connections had time for a request") {
  drain_world w{{.front = true}};
  REQUIRE(w.orders == std::vector{drain_order::close_front, drain_order::announce});
  w.facts = {.at_front = 3, .connections = 5};
  for (int i = 0; i < 500; ++i) w.look();
  CHECK_FALSE(w.core.over());
  w.facts = {.connections = 2};
  CHECK(w.until(drain_order::leave).value() >= 1s);
  drain_world gone{{.front = true}};
  gone.look();  // nobody is connected
  CHECK(gone.core.over());
}

TEST_CASE("a worker leaves a fifth of a second after the conductor knows and its last request has ended") {
  drain_world w{{.works = true}};
  REQUIRE(w.orders == std::vector{drain_order::announce});
  w.facts = {.held = 2, .announced = true};
  for (int i = 0; i < 500; ++i) w.look();
  CHECK_FALSE(w.core.over());
  w.facts.held = 0;
  for (int i = 0; i < 9; ++i) w.look();
  w.facts.held = 1;  // a placement that was under way
  w.look();
  w.facts.held = 0;
  const auto quiet = w.until(drain_order::leave);
  CHECK(quiet.value() >= 200ms);
  CHECK(quiet.value() < 300ms);
}

TEST_CASE("clients of the process end before its workers are closed to them") {
  drain_world w{{.front = true, .works = true}};
  CHECK(w.orders == std::vector{drain_order::close_front});
  w.facts = {.at_front = 1, .connections = 1, .held = 1};
  for (int i = 0; i < 100; ++i) w.look();
  CHECK_FALSE(w.has(drain_order::announce));
  w.facts = {};
  REQUIRE(w.until(drain_order::announce));
  w.facts.announced = true;
  CHECK(w.until(drain_order::leave));
}

TEST_CASE("what outlasts the limit is handed over; the last instance of a role does not wait so long") {
  for (const bool last : {false, true}) {
    drain_world w{{.works = true}};
    w.facts = {.held = 1, .announced = true, .last = last};
    REQUIRE(w.until(drain_order::hand_over));
    CHECK(w.now - w.told == (last ? 5s : 30s));
    w.facts.held = 0;
    w.look();
    CHECK(w.core.over());
  }
}

TEST_CASE("a conductor that is away keeps nobody, and no limit waits for nothing") {
  drain_world w{{.works = true}};
  CHECK(w.until(drain_order::leave).value() <= 4s);
  drain_world now{{.front = true, .works = true}, 0s};
  CHECK(now.orders == std::vector{drain_order::leave});
}

TEST_CASE("whatever happens: orders in their order, an end in time, and no cut that could be avoided") {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return random() % n; };
    const drain_parts parts{below(2) == 0, below(2) == 0};
    const auto limit = duration{std::chrono::milliseconds(below(6) * 1000)};
    drain_world w{parts, limit};
    w.begin();  // a second word changes nothing
    auto before = w.facts;
    while (!w.core.over() && w.now - w.told < 20s) {
      before = w.facts;
      if (below(10) == 0) w.facts.at_front = below(3) * parts.front;
      if (below(10) == 0) w.facts.connections = (w.facts.at_front + below(3)) * parts.front;
      if (below(10) == 0) w.facts.held = below(4) * parts.works;
      if (below(30) == 0) w.facts.announced = !w.facts.announced;
      w.facts.last = w.facts.announced && below(2) == 0;
      w.look();
    }
    REQUIRE(w.core.over());
    CHECK(w.now - w.told <= limit + 2s + step);
    REQUIRE(std::ranges::count(w.orders, drain_order::leave) == 1);
    CHECK(w.orders.back() == drain_order::leave);
    CHECK(std::ranges::is_sorted(w.orders));
    CHECK(std::ranges::adjacent_find(w.orders) == w.orders.end());
    const bool in_time = w.now - w.told < limit;
    if (in_time) CHECK(w.facts.at_front == 0);
    if (in_time && !w.has(drain_order::hand_over)) CHECK(w.facts.held == 0);
    if (limit > 0s && w.facts.held > 0 && w.has(drain_order::announce) && parts.works)
      CHECK(w.has(drain_order::hand_over));
  }
}
