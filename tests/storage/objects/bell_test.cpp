#include "storage/objects/bell.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace mooncaf;
using namespace std::chrono_literals;

TEST_CASE("who sleeps beside a bell is woken by whoever knows its name, also if it rang before") {
  auto mine = bell::hang();
  auto other = bell::hang();
  REQUIRE(mine);
  REQUIRE(other);
  CHECK(mine->name() != other->name());
  bell_ringer ringer;
  ringer.ring(mine->name());
  const auto begin = clock_type::now();
  mine->wait(begin + 60s);
  CHECK(clock_type::now() - begin < 30s);

  std::thread rings{[&, name = mine->name()] { ringer.ring(name); }};
  mine->wait(begin + 60s);
  CHECK(clock_type::now() - begin < 30s);
  rings.join();

  // Neither the other bell nor what rang once is heard now.
  for (auto* quiet : {&*mine, &*other}) {
    const auto until = clock_type::now() + 5ms;
    quiet->wait(until);
    CHECK(clock_type::now() >= until);
  }
}

TEST_CASE("a bell that is gone, or that there never was, harms nobody who rings it, however often") {
  bell_ringer ringer;
  const auto gone = bell::hang()->name();
  for (const auto& name :
       {gone, std::string{}, std::string{"@"}, std::string(500, 'x'), std::string{"@\0b", 3}})
    ringer.ring(name);
  const auto full = bell::hang();
  REQUIRE(full);
  for (int i = 0; i < 10'000; ++i) ringer.ring(full->name());
}
