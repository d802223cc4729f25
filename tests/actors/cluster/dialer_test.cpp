#include "actors/cluster/dialer.hpp"

#include <doctest/doctest.h>

#include <future>

#include "actors/cluster/backoff.hpp"
#include "tests/actors/cluster/echo.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using node = linked_system<caf::id_block::cluster_tests>;

namespace {

/// A loopback port that nobody listens on, and that a later node can have.
std::uint16_t free_port() {
  node n;
  const auto root = n.keep(echo_actor{n.sys.spawn<echo>()});
  return n.link.publish(root, "127.0.0.1", 0).value();
}

dial_plan plan_to(std::uint16_t port) {
  return {.host = "127.0.0.1",
          .port = port,
          .first_wait = std::chrono::milliseconds(5),
          .longest_wait = std::chrono::milliseconds(20)};
}

constexpr auto patience = std::chrono::seconds(20);

}  // namespace

TEST_CASE("waits double up to the longest, with jitter, and begin anew after a reset") {
  using std::chrono::milliseconds;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    backoff wait{milliseconds(100), milliseconds(1500), seed};
    for (const int round : {0, 1}) {
      CAPTURE(round);
      duration whole = milliseconds(100);
      for (int i = 0; i < 100; ++i) {
        const auto next = wait.next();
        CHECK(next <= whole);
        CHECK(next >= whole / 2);
        whole = std::min<duration>(2 * whole, milliseconds(1500));
      }
      wait.reset();
    }
  }
  backoff a{milliseconds(100), milliseconds(100), 1};
  backoff b{milliseconds(100), milliseconds(100), 2};
  CHECK(a.next() != b.next());
}

TEST_CASE("a dialler goes on until somebody listens") {
  const auto port = free_port();
  node caller;
  dialer dials{caller.link, 1};
  std::promise<echo_actor> reached;
  std::promise<void> missed_twice;
  std::atomic<int> misses{0};
  dials.dial<echo_actor>(
      plan_to(port), [&](echo_actor found) { reached.set_value(std::move(found)); },
      [&](const error& e) {
        CHECK(e == ec::peer_lost);
        if (++misses == 2) missed_twice.set_value();
      });
  REQUIRE(missed_twice.get_future().wait_for(patience) == std::future_status::ready);

  node callee;
  REQUIRE(callee.link.publish(callee.keep(echo_actor{callee.sys.spawn<echo>()}), "127.0.0.1", port));
  auto found = reached.get_future();
  REQUIRE(found.wait_for(patience) == std::future_status::ready);
  CHECK(caller.ask<std::string>(found.get(), echo_atom_v, std::string{"x"}) == std::string{"x"});
}

TEST_CASE("a dead address does not keep a dialler from a living one") {
  const auto dead_port = free_port();
  node caller;
  node callee;
  const auto port = callee.link.publish(callee.keep(echo_actor{callee.sys.spawn<echo>()}), "127.0.0.1", 0);
  REQUIRE(port);
  dialer dials{caller.link, 1};
  dials.dial<echo_actor>(plan_to(dead_port), [](const echo_actor&) { FAIL("nobody listens there"); });
  std::promise<void> reached;
  dials.dial<echo_actor>(plan_to(*port), [&](const echo_actor&) { reached.set_value(); });
  CHECK(reached.get_future().wait_for(patience) == std::future_status::ready);
}

TEST_CASE("a dial is given up when it is cancelled, when it can never succeed, and when the dialler ends") {
  node caller;
  {
    dialer dials{caller.link, 1};
    // This process dials itself: that will not get better.
    const auto own = caller.link.publish(caller.keep(echo_actor{caller.sys.spawn<echo>()}), "127.0.0.1", 0);
    std::atomic<int> misses{0};
    dials.dial<echo_actor>(
        plan_to(own.value()), [](const echo_actor&) {}, [&](const error&) { ++misses; });

    const auto port = free_port();
    std::promise<void> missed;
    std::atomic<bool> once{false};
    const auto ticket = dials.dial<echo_actor>(
        plan_to(port), [](const echo_actor&) { FAIL("nobody listens there"); },
        [&](const error&) {
          if (!once.exchange(true)) missed.set_value();
        });
    REQUIRE(missed.get_future().wait_for(patience) == std::future_status::ready);
    dials.cancel(ticket);
    dials.cancel(ticket + 100);

    std::promise<void> enough;
    std::atomic<int> count{0};
    dials.dial<echo_actor>(
        plan_to(port), [](const echo_actor&) {},
        [&](const error&) {
          if (++count == 5) enough.set_value();
        });
    REQUIRE(enough.get_future().wait_for(patience) == std::future_status::ready);
    CHECK(misses == 1);
  }
}
