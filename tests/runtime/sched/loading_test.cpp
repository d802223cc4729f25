// How long a request waits for a prefix, and when computing begins behind one that is still coming in.

#include <doctest/doctest.h>

#include "runtime/sched/layer_arrival.hpp"
#include "runtime/sched/load_plan.hpp"
#include "runtime/sched/prefetch_policy.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

prefetch_policy policy(prefetch_mode mode) { return prefetch_policy{{mode, 100ms, 200ms, 256}}; }

}  // namespace

TEST_CASE("best effort never keeps an idle device waiting, and loads while it is busy") {
  const auto p = policy(prefetch_mode::best_effort);
  CHECK(!p.begins(true));
  CHECK(p.begins(false));
  CHECK(p.ends(1024, 0s, true));
  CHECK(!p.ends(1024, 1h, false));
  CHECK(!p.by_layers(1024, 1ms));  // what it has when it is stopped must be of use
  CHECK(p.limit(1024) == duration::max());
}

TEST_CASE("wait_complete waits, layer by layer") {
  const auto p = policy(prefetch_mode::wait_complete);
  CHECK(p.begins(true));
  CHECK(!p.ends(1024, 1h, true));
  CHECK(p.by_layers(1024, 1h));
}

TEST_CASE("a timeout grows with the prefix, whether the device is idle or not") {
  const auto p = policy(prefetch_mode::timeout);
  CHECK(p.begins(true));
  CHECK(p.limit(0) == 100ms);
  CHECK(p.limit(512) == 200ms);
  CHECK(p.limit(4096) == 900ms);
  CHECK(!p.ends(512, 199ms, true));
  CHECK(p.ends(512, 200ms, false));
  // Layers are of use all together: only what should come in time is loaded so.
  CHECK(p.by_layers(512, 150ms));
  CHECK(!p.by_layers(512, 250ms));
}

TEST_CASE("computing begins when the missing layers take no longer than the pass") {
  const time_point t{};
  layer_arrival a{10, t};
  CHECK(!a.may_begin(1h));  // nothing is known before the first layer
  a.landed(1, t + 10ms);
  CHECK(a.remaining() == 90ms);
  CHECK(a.may_begin(90ms));
  CHECK(!a.may_begin(89ms));
  a.landed(6, t + 60ms);
  CHECK(a.may_begin(40ms));
  CHECK(!a.may_begin(39ms));
  a.landed(3, t + 70ms);  // told late
  CHECK(a.remaining() == 40ms);
  a.landed(10, t + 100ms);
  CHECK(a.may_begin(0s));
}

TEST_CASE("a pass waits for a layer some time longer than expected, and not for ever") {
  const time_point t{};
  layer_arrival a{10, t};
  CHECK(a.patience() == 100ms);
  a.landed(1, t + 100ms);
  CHECK(a.patience() == 2700ms);
  a.landed(10, t + 1s);
  CHECK(a.patience() == 100ms);
}

TEST_CASE("a disk that gives runs of layers is read where its first run costs less than what it saves") {
  const prefill_model computing;  // 0.1 ms per token
  load_question q;
  q.prompt_tokens = 10'000;
  q.block_tokens = 500;
  q.held_blocks = 10;
  q.read = 800ms;
  q.disk_parts = 16;
  const auto most = plan_load(q, computing);
  CHECK(most.from_disk == 10);
  CHECK(to_seconds(most.cost) == doctest::Approx(0.8 + 0.5 / 16).epsilon(0.01));
  // Whole, 0.8 s and then 0.5 s are more than 1 s; in two runs 0.8 s and 0.25 s are, too.
  q.disk_parts = 1;
  CHECK(plan_load(q, computing).from_disk == 0);
  q.disk_parts = 2;
  CHECK(plan_load(q, computing).from_disk == 0);
}
