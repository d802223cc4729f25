#include "runtime/sched/pool_watch.hpp"

#include <doctest/doctest.h>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("a pool is as full as its instances were busy since the last look, on so many nodes") {
  auto core = small_cluster(small_options(), 2, 1);
  pool_watch watch{10s, 100ms};
  const auto report = [&](std::uint64_t worker, duration busy, time_point now) {
    watch.reported(worker_id{worker}, {0, 0, 0, {}, busy}, now);
  };
  for (const std::uint64_t w : {1, 2, 1001}) report(w, 0s, start);
  watch.look(core.cluster(), start, 10s);
  CHECK(watch.seen().prefill.load == 0);

  report(1, 10s, start + 10s);
  report(2, 5s, start + 10s);
  report(1001, 0s, start + 10s);
  const auto& seen = watch.look(core.cluster(), start + 10s, 0s);  // no mean over earlier ones
  CHECK(seen.prefill.load == doctest::Approx(0.75));
  CHECK(seen.prefill.running == 2);
  CHECK(seen.prefill_nodes == 2);
  CHECK(seen.decode.load == 0);
  CHECK(seen.decode_nodes == 1);
  CHECK(watch.of(worker_id{1})->worked == start + 10s);
  CHECK(watch.of(worker_id{1001})->worked == time_point{});

  static_cast<void>(core.remove_node(node_id{2}));
  watch.look(core.cluster(), start + 20s, 0s);
  CHECK(watch.seen().prefill_nodes == 1);
  CHECK(watch.of(worker_id{2}) == nullptr);
}
