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
  core.wish({{"a", "x"}});
  CHECK(orders(core, t0) == "spawn a");
  auto now = t0;
  std::vector<duration> waits;
  for (int i = 0; i < 10; ++i) {
    core.ended("a", "signal 9", now);
    CHECK(orders(core, now).empty());
    waits.push_back(core.until_next(now, 1h));
    now += waits.back();
    CHECK(core.view(now).at("a").loops == (i >= 3));
    CHECK(orders(core, now) == "spawn a");
  }
  CHECK(waits[0] == 250ms);
  CHECK(waits[3] == 2s);
  CHECK(waits[9] == 30s);
  core.became_ready("a", now);
  CHECK(core.view(now + 1s).at("a").loops);
  CHECK_FALSE(core.view(now + 31s).at("a").loops);
  core.ended("a", "exit status 4", now + 31s);
  CHECK(core.until_next(now + 31s, 1h) == 250ms);
  CHECK(core.view(now + 31s).at("a").last_end == "exit status 4");
}

TEST_CASE("a process that is not wished is told to end, killed if it does not, and then forgotten") {
  keeper_core core{10s};
  core.wish({{"a", "x"}, {"b", "x"}});
  CHECK(orders(core, t0) == "spawn a, spawn b");
  core.wish({{"b", "x"}});
  CHECK(orders(core, t0) == "terminate a");
  CHECK(orders(core, t0 + 9s).empty());
  CHECK(orders(core, t0 + 10s) == "kill a");
  CHECK(orders(core, t0 + 11s).empty());
  core.ended("a", "signal 9", t0 + 11s);
  CHECK_FALSE(core.view(t0).contains("a"));
  CHECK(orders(core, t0 + 12s).empty());
  core.wish({});
  CHECK(orders(core, t0 + 12s) == "terminate b");
  core.ended("b", "exit status 0", t0 + 12s);
  CHECK(core.idle());
}

TEST_CASE("another configuration ends the process first and starts it then; the same one leaves it alone") {
  keeper_core core{10s};
  core.wish({{"a", "x"}});
  CHECK(orders(core, t0) == "spawn a");
  core.became_ready("a", t0);
  core.wish({{"a", "x"}});
  CHECK(orders(core, t0).empty());
  core.wish({{"a", "y"}});
  CHECK(orders(core, t0) == "terminate a");
  CHECK(core.view(t0).at("a").phase == "ending");
  core.ended("a", "exit status 0", t0 + 1s);
  CHECK(orders(core, t0 + 1s) == "spawn a");
  CHECK(core.view(t0 + 1s).at("a").text == "y");
}

TEST_CASE("a process that waits to be started again and is not wished any more never comes back") {
  keeper_core core{10s};
  core.wish({{"a", "x"}});
  CHECK(orders(core, t0) == "spawn a");
  core.ended("a", "exit status 4", t0);
  core.wish({});
  CHECK(orders(core, t0 + 1h).empty());
  CHECK(core.idle());
}
