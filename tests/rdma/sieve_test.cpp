#include "transport/rdma/sieve.hpp"

#include <doctest/doctest.h>

#include "transport/rdma/rail_health.hpp"

using namespace mooncaf;

namespace {
constexpr auto anyone = [](int) { return true; };
}

TEST_CASE("without uses the oldest goes first") {
  sieve<int> s;
  for (const int k : {1, 2, 3}) s.touch(k);
  CHECK(s.evict(anyone) == 1);
  CHECK(s.evict(anyone) == 2);
  CHECK(s.evict(anyone) == 3);
  CHECK(!s.evict(anyone));
}

TEST_CASE("what was used since the hand last came by is spared once") {
  sieve<int> s;
  for (const int k : {1, 2, 3}) s.touch(k);
  s.touch(1);
  CHECK(s.evict(anyone) == 2);
  s.touch(4);
  CHECK(s.evict(anyone) == 3);
  CHECK(s.evict(anyone) == 4);
  CHECK(s.evict(anyone) == 1);
}

TEST_CASE("a hand that stands on an entry survives its removal") {
  sieve<int> s;
  for (const int k : {1, 2, 3, 4}) s.touch(k);
  s.touch(1);
  CHECK(s.evict(anyone) == 2);  // the hand now stands on 3
  s.erase(3);
  CHECK(s.evict(anyone) == 4);
  CHECK(s.evict(anyone) == 1);
  CHECK(s.size() == 0);
}

TEST_CASE("who may not go stays, and if nobody may there is no victim") {
  sieve<int> s;
  for (const int k : {1, 2, 3}) s.touch(k);
  CHECK(s.evict([](int k) { return k == 3; }) == 3);
  CHECK(!s.evict([](int) { return false; }));
  CHECK(s.size() == 2);
}

TEST_CASE("a rail that fails again and again is tried ever more seldom, up to a bound, until it works") {
  using namespace std::chrono_literals;
  rail_health h{200ms, 1s};
  const time_point start{};
  CHECK(h.may_try(start));
  h.failed(start);
  CHECK(!h.may_try(start + 199ms));
  CHECK(h.may_try(start + 200ms));
  h.failed(start);
  CHECK(h.retry_at() == start + 400ms);
  for (int i = 0; i < 100; ++i) h.failed(start);
  CHECK(h.retry_at() == start + 1s);
  h.worked();
  h.failed(start);
  CHECK(h.retry_at() == start + 200ms);
  h.forgive();
  CHECK(h.may_try(start));
}
