#include "runtime/sched/cluster_state.hpp"

#include <doctest/doctest.h>

#include <random>

#include "runtime/sched/event_stream.hpp"
#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

cluster_state two_and_two() {
  cluster_state c{20s};
  for (std::uint64_t n = 1; n <= 2; ++n) {
    c.add_node(node_id{n}, static_cast<node_index>(n), start);
    REQUIRE(c.add_instance(prefill_instance(n, node_id{n})).has_value());
    REQUIRE(c.add_instance(decode_instance(10 + n, node_id{n})).has_value());
  }
  return c;
}

cluster_state::placed placed_on(instance_slot p, instance_slot d, duration cost,
                                std::uint64_t context = 100) {
  return {p, d, cost, start + cost, context};
}

}  // namespace

TEST_CASE("a queue is what was charged, less the time that passed") {
  auto c = two_and_two();
  c.charge(request_id{1}, placed_on(0, 0, 2s), start);
  c.charge(request_id{2}, placed_on(0, 0, 3s), start + 1s);
  CHECK(c.prefill().queue(0, start + 1s) == 4s);
  CHECK(c.prefill().queue(1, start + 1s) == 0s);
  CHECK(c.prefill().queue(0, start + 60s) == 0s);
}

TEST_CASE("an end of prefill puts the queue right, late or early") {
  auto c = two_and_two();
  c.charge(request_id{1}, placed_on(0, 0, 2s), start);
  c.charge(request_id{2}, placed_on(0, 0, 3s), start);
  SUBCASE("early") {
    CHECK(c.first_token(request_id{1}, start + 500ms).has_value());
    CHECK(c.prefill().queue(0, start + 500ms) == 3s);
  }
  SUBCASE("late") {
    CHECK(c.first_token(request_id{1}, start + 10s).has_value());
    CHECK(c.prefill().queue(0, start + 10s) == 3s);
  }
  SUBCASE("a second word about it changes nothing") {
    CHECK(c.first_token(request_id{1}, start + 1s).has_value());
    CHECK(!c.first_token(request_id{1}, start + 2s).has_value());
    CHECK(c.prefill().queue(0, start + 2s) == 2s);
  }
}

TEST_CASE("an instance that is late is not taken for idle") {
  auto c = two_and_two();
  c.charge(request_id{1}, placed_on(0, 0, 2s), start);
  c.charge(request_id{2}, placed_on(0, 0, 2s), start);
  CHECK(c.prefill().queue(0, start + 30s) == 0s);
  c.report(worker_id{1}, {}, start + 30s);
  CHECK(c.prefill().queue(0, start + 30s) == 2s);  // one is under way, the other has not begun
}

TEST_CASE("a withdrawn request gives its time back") {
  auto c = two_and_two();
  c.charge(request_id{1}, placed_on(0, 0, 2s), start);
  c.charge(request_id{2}, placed_on(0, 0, 3s), start);
  CHECK(c.release(request_id{2}, request_state::cancelled, start + 1s));
  CHECK(c.prefill().queue(0, start + 1s) == 1s);
  CHECK(!c.release(request_id{2}, request_state::cancelled, start + 1s));
  CHECK(c.prefill().queue(0, start + 1s) == 1s);
  CHECK(c.release(request_id{1}, request_state::failed, start + 1s));
  CHECK(c.prefill().queue(0, start + 1s) == 0s);
}

TEST_CASE("instances need a node and an id of their own") {
  auto c = two_and_two();
  CHECK(c.add_instance(prefill_instance(99, node_id{77})).error() == ec::not_found);
  CHECK(c.add_instance(prefill_instance(1, node_id{1})).error() == ec::already_exists);
  CHECK(c.set_state(worker_id{1234}, instance_state::draining).error() == ec::not_found);
  CHECK(c.remove_instance(worker_id{1234}).empty());
  CHECK(c.remove_node(node_id{1234}).empty());
}

TEST_CASE("only live instances are chosen") {
  auto c = two_and_two();
  REQUIRE(c.set_state(worker_id{1}, instance_state::draining).has_value());
  REQUIRE(c.set_state(worker_id{11}, instance_state::joining).has_value());
  CHECK(c.prefill().shortest(0, start) == 1);
  CHECK(c.decode().select(10).slot == 1);
  REQUIRE(c.set_state(worker_id{2}, instance_state::draining).has_value());
  REQUIRE(c.set_state(worker_id{12}, instance_state::draining).has_value());
  CHECK(c.prefill().shortest(0, start) == no_slot);
  CHECK(c.decode().select(10).slot == no_slot);
  REQUIRE(c.set_state(worker_id{1}, instance_state::live).has_value());
  REQUIRE(c.set_state(worker_id{11}, instance_state::live).has_value());
  CHECK(c.prefill().shortest(0, start) == 0);
  CHECK(c.decode().select(10).slot == 0);
}

TEST_CASE("a lost prefill instance takes along what it was computing, not what decodes already") {
  auto c = two_and_two();
  c.charge(request_id{1}, placed_on(0, 1, 2s), start);
  c.charge(request_id{2}, placed_on(0, 1, 2s), start);
  c.charge(request_id{3}, placed_on(1, 1, 2s), start);
  REQUIRE(c.first_token(request_id{1}, start + 2s).has_value());
  CHECK(c.remove_instance(worker_id{1}) == std::vector{request_id{2}});
  CHECK(c.charged_requests() == 2);
  // The slot is given out again; what decodes must not be counted there.
  REQUIRE(c.add_instance(prefill_instance(5, node_id{1})).has_value());
  CHECK(c.prefill().pending(0) == 0);
  CHECK(c.release(request_id{1}, request_state::finished, start + 3s));
  CHECK(c.prefill().pending(0) == 0);
  CHECK(c.decode().charged(1) == 1);
}

TEST_CASE("a lost decode instance takes along all that was meant for it") {
  auto c = two_and_two();
  c.charge(request_id{1}, placed_on(0, 0, 2s), start);
  c.charge(request_id{2}, placed_on(1, 0, 2s), start);
  c.charge(request_id{3}, placed_on(1, 1, 2s), start);
  REQUIRE(c.first_token(request_id{1}, start + 2s).has_value());
  CHECK(c.remove_instance(worker_id{11}) == std::vector{request_id{1}, request_id{2}});
  CHECK(c.prefill().pending(1) == 1);
  CHECK(c.charged_requests() == 1);
}

TEST_CASE("decode goes where steps are short, and past those that are full") {
  cluster_state c{20s};
  c.add_node(node_id{1}, 1, start);
  REQUIRE(c.add_instance(prefill_instance(1, node_id{1})).has_value());
  REQUIRE(c.add_instance(decode_instance(10, node_id{1}, 2, 0.010)).has_value());
  REQUIRE(c.add_instance(decode_instance(11, node_id{1}, 2, 0.050)).has_value());
  CHECK(c.decode().select(100).slot == 0);
  for (std::uint64_t id = 1; id <= 2; ++id) c.charge(request_id{id}, placed_on(0, 0, 1s), start);
  CHECK(c.decode().select(100).slot == 1);  // slower, but has a place
  for (std::uint64_t id = 3; id <= 4; ++id) c.charge(request_id{id}, placed_on(0, 1, 1s), start);
  CHECK(!c.decode().select(100).saturated);
  for (std::uint64_t id = 5; id <= 6; ++id) c.charge(request_id{id}, placed_on(0, 0, 1s), start);
  for (std::uint64_t id = 7; id <= 8; ++id) c.charge(request_id{id}, placed_on(0, 1, 1s), start);
  CHECK(c.decode().select(100).saturated);
}

TEST_CASE("a decode instance to avoid is taken only if there is no other") {
  auto c = two_and_two();
  const std::vector first{worker_id{11}}, both{worker_id{11}, worker_id{12}};
  CHECK(c.decode().select(10).slot == 0);
  CHECK(c.decode().select(10, first).slot == 1);
  CHECK(c.decode().select(10, both).slot == 0);
  REQUIRE(c.set_state(worker_id{12}, instance_state::draining).has_value());
  CHECK(c.decode().select(10, first).slot == 0);
}

TEST_CASE("reported context corrects what was charged, and goes with those who end") {
  std::vector<timing_point> by_context{
      {1, 1000, 0.011}, {1, 10000, 0.020}, {10, 1000, 0.011}, {10, 100000, 0.110}};
  cluster_state c{20s};
  c.add_node(node_id{1}, 1, start);
  REQUIRE(c.add_instance(prefill_instance(1, node_id{1})).has_value());
  auto desc = decode_instance(10, node_id{1});
  desc.samples = by_context;
  REQUIRE(c.add_instance(desc).has_value());
  c.charge(request_id{1}, placed_on(0, 0, 1s, 1000), start);
  REQUIRE(c.first_token(request_id{1}, start + 1s).has_value());
  const auto before = c.decode().step(0, 0, false);
  c.report(worker_id{10}, {1, 0, 9000, {1, 1, 9000, c.decode().step(0, 8000, false)}}, start + 2s);
  CHECK(to_seconds(c.decode().step(0, 0, false)) ==
        doctest::Approx(to_seconds(before) + 0.008).epsilon(0.01));
  CHECK(c.release(request_id{1}, request_state::finished, start + 3s));
  CHECK(to_seconds(c.decode().step(0, 1000, true)) == doctest::Approx(0.011).epsilon(0.01));
}

TEST_CASE("whatever becomes of requests, nothing stays charged") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    auto core = small_cluster(small_options(), 4, 3);
    auto now = start;
    std::vector<request_id> open;
    std::uint64_t next_id = 1, next_worker = 5000;
    for (int step = 0; step < 3000; ++step) {
      now += duration{static_cast<std::int64_t>(random() % 50'000'000)};
      const auto any = [&] {
        return open.empty() ? request_id{random() % 50} : open[random() % open.size()];
      };
      switch (random() % 12) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const auto keys = chain(random() % 4, random() % 6);
          // Now and then an id that is charged already.
          const auto id = random() % 20 == 0 && !open.empty() ? any() : request_id{next_id++};
          const auto placed = core.schedule(request_of(id.value, keys, 700), now);
          if (placed) open.push_back(id);
          break;
        }
        case 4:
          core.prefill_started(any(), now);
          break;
        case 5:
        case 6:
          core.first_token(any(), 100, 0, 100ms, now);
          break;
        case 7:
          core.finished(any(), now);
          break;
        case 8:
          core.failed(any(), now);
          break;
        case 9:
          core.cancelled(any(), now);
          break;
        case 10:
          core.finished(any(), now);
          break;
        default:
          if (random() % 10 != 0) break;
          if (random() % 2) {
            const node_id node{1 + random() % 4};
            core.remove_node(node);
            REQUIRE(core.add_node(node, now).has_value());
            REQUIRE(core.add_instance(prefill_instance(next_worker++, node)).has_value());
          } else {
            const node_id node{1001 + random() % 3};
            core.remove_node(node);
            REQUIRE(core.add_node(node, now).has_value());
            REQUIRE(core.add_instance(decode_instance(next_worker++, node)).has_value());
          }
      }
    }
    for (const auto id : open) core.failed(id, now);
    CHECK(core.charged_requests() == 0);
    for (const auto& v : core.cluster().views(now)) {
      CHECK(v.charged == 0);
      CHECK(v.queue == 0s);
      CHECK(v.step == 0s);
    }
    const auto load = const_cast<cluster_state&>(core.cluster()).forecast().at(now);
    CHECK(load.requests == 0);
    CHECK(load.context_tokens == 0);
  }
}

TEST_CASE("a request's life moves forward and ends once") {
  request_life life;
  CHECK(!life.advance(request_state::finished));  // nothing was decoded
  CHECK(life.advance(request_state::prefilling));
  CHECK(!life.advance(request_state::placed));
  CHECK(life.advance(request_state::decoding));
  CHECK(life.advance(request_state::finished));
  for (const auto s :
       {request_state::failed, request_state::cancelled, request_state::lost, request_state::finished}) {
    CHECK(!life.advance(s));
  }
  request_life short_one;
  CHECK(short_one.advance(request_state::decoding));  // the notice of its start was lost
  CHECK(short_one.advance(request_state::lost));
  CHECK(is_terminal(short_one.state()));
}

TEST_CASE("lost announcements are noticed once, and a snapshot heals them") {
  event_stream stream;
  CHECK(stream.apply(1, 3) == stream_verdict::stale);  // no snapshot yet
  CHECK(stream.snapshot(10, 0) == stream_verdict::replace);
  CHECK(stream.snapshot(10, 1) == stream_verdict::apply);
  CHECK(stream.apply(11, 3) == stream_verdict::apply);
  CHECK(stream.apply(12, 1) == stream_verdict::stale);
  CHECK(stream.apply(14, 1) == stream_verdict::apply);
  CHECK(stream.apply(17, 1) == stream_verdict::gap);
  CHECK(stream.apply(18, 1) == stream_verdict::stale);
  CHECK(stream.waiting());
  CHECK(stream.gaps() == 1);
  CHECK(stream.snapshot(20, 1) == stream_verdict::stale);  // its first part was lost
  CHECK(stream.snapshot(20, 0) == stream_verdict::replace);
  CHECK(stream.snapshot(20, 2) == stream_verdict::gap);
  CHECK(stream.snapshot(30, 0) == stream_verdict::replace);
  CHECK(stream.apply(31, 0) == stream_verdict::apply);
  CHECK(stream.apply(31, 2) == stream_verdict::apply);
  CHECK(stream.gaps() == 2);
}
