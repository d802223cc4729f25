#include <doctest/doctest.h>

#include "runtime/sched/autoscaler.hpp"
#include "runtime/sched/role_switch.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

time_point at(duration d) { return time_point{d}; }

}  // namespace

TEST_CASE("the autoscaler asks for as many as bring the load to its target, at once") {
  autoscaler a{{1, 20, 0.5, 0.1, 5min}};
  CHECK(a.wanted({0.5, 4}, 4, at(0s)) == 4);
  CHECK(a.wanted({1.0, 4}, 4, at(15s)) == 8);
  CHECK(a.wanted({1.0, 4}, 8, at(30s)) == 8);     // they are coming
  CHECK(a.wanted({9.0, 4}, 8, at(45s)) == 20);    // no more than there may be
  CHECK(a.wanted({0.53, 8}, 8, at(20min)) == 8);  // within the tolerance
}

TEST_CASE("the autoscaler lets go only of what nobody needed for a while") {
  autoscaler a{{2, 20, 0.5, 0.1, 5min}};
  CHECK(a.wanted({0.5, 10}, 10, at(0s)) == 10);
  CHECK(a.wanted({0.1, 10}, 10, at(1min)) == 10);
  CHECK(a.wanted({0.3, 10}, 10, at(2min)) == 10);
  CHECK(a.wanted({0.1, 10}, 10, at(4min)) == 10);
  CHECK(a.wanted({0.1, 10}, 10, at(6min)) == 6);  // six were needed two minutes in
  CHECK(a.wanted({0.1, 6}, 6, at(8min)) == 2);
  CHECK(a.wanted({0, 2}, 2, at(30min)) == 2);
  CHECK(a.wanted({0, 0}, 0, at(31min)) == 2);  // all of them died
}

TEST_CASE(
    "an instance changes its role when the other one is the emptier for it, for a while, one at a time") {
  role_switch s{{0.5, 0.1, 30s}};
  CHECK_FALSE(s.decide({0.2, 4}, {0.4, 4}, at(0s)));  // nobody is in need
  CHECK_FALSE(s.decide({0.2, 4}, {0.9, 4}, at(15s)));
  CHECK_FALSE(s.decide({0.2, 4}, {0.9, 4}, at(30s)));
  CHECK(s.decide({0.2, 4}, {0.9, 4}, at(45s)) == worker_role::prefill);
  CHECK(s.decide({0.25, 3}, {0.72, 5}, at(60s)) == worker_role::prefill);  // it still helps
  CHECK_FALSE(s.decide({0.38, 2}, {0.6, 6}, at(75s)));
  CHECK_FALSE(s.decide({0.9, 4}, {0.2, 4}, at(80s)));   // the need is the other's: it waits anew
  CHECK_FALSE(s.decide({0.9, 4}, {0.2, 4}, at(110s)));  // twice as long, as it goes back
  CHECK(s.decide({0.9, 4}, {0.2, 4}, at(140s)) == worker_role::decode);
}

TEST_CASE("each change back waits twice as long, until loads have stayed as they were") {
  role_switch s{{0.5, 0.1, 5s}};
  // Loads that turn so often; once a machine has changed they are even until it is missed.
  std::optional<bool> helped;
  const auto changes = [&](duration phase, duration from, duration until) {
    int count = 0;
    for (auto begins = from; begins < until; begins += phase) {
      const bool prompts = (begins - from) / phase % 2 == 0;
      const bool was = helped == prompts;
      bool even = was;
      for (auto t = begins; t < begins + phase; t += 500ms) {
        const double full = even ? 0.5 : 0.9, other = even ? 0.5 : 0.2;
        even |= s.decide({prompts ? full : other, 4}, {prompts ? other : full, 4}, at(t)).has_value();
      }
      count += even && !was;
      if (even) helped = prompts;
    }
    return count;
  };
  // A load that turns forty times, every 15 s: a change or two, and now and then another. One that stays is followed.
  CHECK(changes(15s, 0s, 10min) <= 14);
  CHECK(changes(4s, 20min, 30min) == 0);
  CHECK(changes(2min, 40min, 60min) == 10);
}

TEST_CASE("nobody gives its last instance away, or one that would be missed more") {
  role_switch s{{0.5, 0.1, 0s}};
  CHECK_FALSE(s.decide({0, 1}, {3, 4}, at(0s)));
  CHECK_FALSE(s.decide({0.8, 2}, {0.9, 2}, at(1s)));   // 1.6 would be worse
  CHECK_FALSE(s.decide({0.85, 9}, {0.9, 9}, at(2s)));  // no better than before
  CHECK(s.decide({0.1, 2}, {0.9, 2}, at(3s)) == worker_role::prefill);
}
