#include "actors/cluster/shutdown.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "tests/actors/cluster/echo.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

struct running_system {
  config_with<cluster_config, caf::id_block::cluster_tests> cfg;
  caf::actor_system sys{cfg};
};

}  // namespace

TEST_CASE("actors that listen to reason are gone well before the limit") {
  running_system s;
  std::vector<caf::actor> roots;
  for (int i = 0; i < 20; ++i) roots.push_back(caf::actor_cast<caf::actor>(s.sys.spawn<echo>()));
  const auto begin = clock_type::now();
  CHECK(stop_actors(s.sys, std::move(roots), std::chrono::seconds(20)) == shutdown_result::clean);
  CHECK(clock_type::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("an actor that is stuck is reported at the limit instead of waited for") {
  running_system s;
  std::promise<void> release;
  auto released = release.get_future().share();
  std::promise<void> stuck;
  auto busy = s.sys.spawn<caf::detached>([&, released](caf::event_based_actor*) -> caf::behavior {
    return {[&, released](int) {
      stuck.set_value();
      released.wait();
    }};
  });
  caf::anon_send(busy, 1);
  stuck.get_future().wait();
  CHECK(stop_actors(s.sys, {std::move(busy)}, std::chrono::milliseconds(50)) == shutdown_result::stuck);
  release.set_value();
  CHECK(stop_actors(s.sys, {}, std::chrono::seconds(20)) == shutdown_result::clean);
}

TEST_CASE("a stop signal is waited for, not died of") {
  // In a child, as signal masks belong to the whole process.
  const auto child = fork();
  if (child == 0) {
    claim_stop_signals();
    kill(getpid(), SIGTERM);
    if (wait_for_stop() != SIGTERM) leave_now(2);
    kill(getpid(), SIGPIPE);
    kill(getpid(), SIGINT);
    if (wait_for_stop() != SIGINT) leave_now(3);
    leave_now(42);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 42);
}
