// Long work waits for its turn, the shortest first, within a bound; a stop waits for what runs and no more.

#include "actors/http/work_pool.hpp"

#include <doctest/doctest.h>

#include <future>
#include <optional>

#include "tests/actors/http/http_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

/// One thread, held by a task until it is let go.
struct held_pool {
  explicit held_pool(std::size_t bytes) : pool(std::in_place, 1u, bytes) {
    REQUIRE(pool->post(1, [this] {
      running.raise();
      release.get_future().wait();
    }));
    REQUIRE(running.wait());
  }
  signal_flag running;
  std::promise<void> release;
  std::optional<work_pool> pool;
};

}  // namespace

TEST_CASE("the smallest task goes first, equal ones in their order") {
  held_pool held{1000};
  std::vector<int> order;
  signal_flag done;
  for (const auto& [bytes, name] : {std::pair{300u, 5}, {20u, 3}, {10u, 1}, {20u, 4}, {10u, 2}}) {
    CHECK(held.pool->post(bytes, [&order, &done, name = name] {
      order.push_back(name);
      if (order.size() == 5) done.raise();
    }));
  }
  held.release.set_value();
  REQUIRE(done.wait());
  CHECK(order == std::vector{1, 2, 3, 4, 5});
}

TEST_CASE("what waits is bounded in bytes") {
  held_pool held{100};
  CHECK(held.pool->post(60, [] {}));
  CHECK_FALSE(held.pool->post(41, [] {}));
  CHECK(held.pool->post(40, [] {}));
  held.release.set_value();
}

TEST_CASE("a stop drops what waits") {
  held_pool held{1000};
  const auto watched = std::make_shared<int>(0);
  CHECK(held.pool->post(10, [watched] { ++*watched; }));
  std::thread stopper{[&] { held.pool.reset(); }};
  held.release.set_value();
  stopper.join();
  CHECK(watched.use_count() == 1);
}
