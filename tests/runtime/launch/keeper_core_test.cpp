#include "runtime/launch/keeper_core.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;
using namespace mooncaf::launch;
using namespace std::chrono_literals;

namespace {

/// The orders in short: "spawn a", …
std::string orders(keeper_core& core, time_point now) {
  std::string all;
  for (const auto& a : core.due(now)) {
    constexpr const char* names[] = {"spawn ", "terminate ", "kill "};
    all += (all.empty() ? "" : ", ") + std::string{names[static_cast<int>(a.order)]} + a.node;
  }
  return all;
}

const time_point t0 = time_point{} + 1h;

}  // namespace

TEST_CASE("what died is started again, later each time, and a crash loop is said until it runs steadily") {
  keeper_core core{10s};
  core.wish({{"a", {"x"}}});
  CHECK(orders(core, t0) == "spawn a");
  auto now = t0;
  std::vector<duration> waits;
  for (int i = 0; i < 10; ++i) {
    core.ended(i + 1, "signal 9", now);
    CHECK(orders(core, now).empty());
    waits.push_back(core.until_next(now, 1h));
    now += waits.back();
    CHECK(core.view(now).at("a").loops == (i >= 3));
    CHECK(orders(core, now) == "spawn a");
  }
  CHECK(waits[0] == 250ms);
  CHECK(waits[3] == 2s);
  CHECK(waits[9] == 30s);
  core.became_ready(11, now);
  CHECK(core.view(now + 1s).at("a").loops);
  CHECK_FALSE(core.view(now + 31s).at("a").loops);
  core.ended(11, "exit status 4", now + 31s);
  CHECK(core.until_next(now + 31s, 1h) == 250ms);
  CHECK(core.view(now + 31s).at("a").last_end == "exit status 4");
}

TEST_CASE("a process that is not wished is told to end, killed if it does not, and then forgotten") {
  keeper_core core{10s};
  core.wish({{"a", {"x"}}, {"b", {"x"}}});
  CHECK(orders(core, t0) == "spawn a, spawn b");
  core.wish({{"b", {"x"}}});
  CHECK(orders(core, t0) == "terminate a");
  CHECK(orders(core, t0 + 9s).empty());
  CHECK(orders(core, t0 + 10s) == "kill a");
  CHECK(orders(core, t0 + 11s).empty());
  core.ended(1, "signal 9", t0 + 11s);
  CHECK_FALSE(core.view(t0).contains("a"));
  CHECK(orders(core, t0 + 12s).empty());
  core.wish({});
  CHECK(orders(core, t0 + 12s) == "terminate b");
  core.ended(2, "exit status 0", t0 + 12s);
  CHECK(core.idle());
}

TEST_CASE("another configuration ends the process first and starts it then; the same one leaves it alone") {
  keeper_core core{10s};
  core.wish({{"a", {"x"}}});
  CHECK(orders(core, t0) == "spawn a");
  core.became_ready(1, t0);
  core.wish({{"a", {"x"}}});
  CHECK(orders(core, t0).empty());
  core.wish({{"a", {"y"}}});
  CHECK(orders(core, t0) == "terminate a");
  CHECK(core.view(t0).at("a").phase == "ending");
  core.ended(1, "exit status 0", t0 + 1s);
  CHECK(orders(core, t0 + 1s) == "spawn a");
  CHECK(core.view(t0 + 1s).at("a").text == "y");
}

TEST_CASE("a process that waits to be started again and is not wished any more never comes back") {
  keeper_core core{10s};
  core.wish({{"a", {"x"}}});
  CHECK(orders(core, t0) == "spawn a");
  core.ended(1, "exit status 4", t0);
  core.wish({});
  CHECK(orders(core, t0 + 1h).empty());
  CHECK(core.idle());
}

TEST_CASE(
    "a process that overlaps is told to end when its successor is ready, and one of the two always serves") {
  keeper_core core{10s};
  core.wish({{"g", {"x"}}});
  CHECK(orders(core, t0) == "spawn g");
  core.became_ready(1, t0);
  core.wish({{"g", {"x", 1, true}}});
  CHECK(orders(core, t0 + 1s) == "spawn g");
  CHECK(orders(core, t0 + 5s).empty());
  core.became_ready(2, t0 + 6s);
  const auto ends = core.due(t0 + 6s);
  REQUIRE(ends.size() == 1);
  CHECK((ends[0].order == keeper_order::terminate && ends[0].run == 1));
  CHECK(core.view(t0 + 6s).at("g").leaving);
  CHECK(core.until_next(t0 + 6s, 1h) == 10s);
  CHECK(orders(core, t0 + 16s) == "kill g");
  core.ended(1, "signal 9", t0 + 16s);
  const auto now = core.view(t0 + 16s).at("g");
  CHECK(
      (now.phase == "ready" && now.run == 2 && now.generation == 1 && !now.leaving && now.last_end.empty()));
  CHECK(orders(core, t0 + 17s).empty());
}

TEST_CASE("a successor that ends before it is ready leaves its predecessor, until it is asked for anew") {
  keeper_core core{10s};
  core.wish({{"g", {"x"}}});
  CHECK(orders(core, t0) == "spawn g");
  core.became_ready(1, t0);
  core.wish({{"g", {"y", 1, true}}});
  CHECK(orders(core, t0) == "spawn g");
  core.ended(2, "exit status 2", t0);
  const auto now = core.view(t0).at("g");
  CHECK((now.phase == "ready" && now.text == "x" && now.run == 1 && now.refused));
  CHECK(now.last_end == "exit status 2");
  CHECK(orders(core, t0 + 1h).empty());
  core.wish({{"g", {"y", 1, true}}});
  CHECK(orders(core, t0) == "spawn g");
  // The predecessor dies: the successor is started already.
  core.ended(1, "signal 9", t0);
  CHECK(orders(core, t0).empty());
  core.ended(3, "signal 9", t0);
  CHECK(core.view(t0).at("g").phase == "waiting");
}

TEST_CASE("a node that goes while it is succeeded ends in both of its processes") {
  keeper_core core{10s};
  core.wish({{"g", {"x"}}});
  CHECK(orders(core, t0) == "spawn g");
  core.became_ready(1, t0);
  core.wish({{"g", {"x", 1, true}}});
  CHECK(orders(core, t0) == "spawn g");
  core.wish({});
  CHECK(orders(core, t0) == "terminate g, terminate g");
  core.ended(2, "exit status 0", t0);
  CHECK_FALSE(core.idle());
  CHECK(core.view(t0).at("g").phase == "ending");
  core.ended(1, "exit status 0", t0);
  CHECK(core.idle());
}
