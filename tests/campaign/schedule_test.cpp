// That a schedule which fails is of use: it plays the same again, and gets smaller.

#include "tests/campaign/schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace mooncaf::campaign;

TEST_CASE("a seed plays the same every time") {
  for (const std::uint64_t seed : {7u, 30u, 61u}) {
    const auto once = run(schedule::draw(seed)), again = run(schedule::draw(seed));
    CHECK(schedule::draw(seed).describe() == schedule::draw(seed).describe());
    CHECK(once.held());
    CHECK(once.events == again.events);
    CHECK(once.tokens == again.tokens);
    CHECK(once.attempts_failed == again.attempts_failed);
    CHECK(once.settled == again.settled);
  }
}

TEST_CASE("a schedule that fails gets as small as what it fails by") {
  const auto kills = [](const schedule& s) {
    return std::ranges::count(s.faults, fault_kind::kill, &fault::what);
  };
  const auto large = [](const schedule& s) {
    return std::ranges::count_if(s.requests, [](const request_plan& r) { return r.tokens > 10; });
  };
  int tried = 0;
  for (std::uint64_t seed = 1; tried < 3; ++seed) {
    const auto drawn = schedule::draw(seed);
    if (kills(drawn) == 0 || large(drawn) < 2 || drawn.faults.size() < 3) continue;
    ++tried;
    // Planted: one kill and two large requests do it.
    const auto small = shrink(drawn, [&](const schedule& s) { return kills(s) >= 1 && large(s) >= 2; });
    CHECK(small.faults.size() == 1);
    CHECK(small.requests.size() == 2);
    CHECK(kills(small) == 1);
    CHECK(large(small) == 2);
    const auto& f = small.faults[0];
    CHECK(small.places.size() == std::max(f.place, f.other) + 1);
  }
}
