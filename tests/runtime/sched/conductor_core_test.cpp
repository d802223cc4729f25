#include "runtime/sched/conductor_core.hpp"

#include <doctest/doctest.h>

#include <map>

#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("without instances, requests are refused with the role that is missing") {
  conductor_core core{small_options()};
  const auto none = core.schedule(request_of(1, {}, 10), start);
  CHECK(none.error().cause == ec::unavailable);
  CHECK(none.error().stage == reject_stage::placement);
  CHECK(none.error().retry_after > 0s);
  REQUIRE(core.add_node(node_id{1}).has_value());
  REQUIRE(core.add_instance(prefill_instance(1, node_id{1})).has_value());
  CHECK(core.schedule(request_of(1, {}, 10), start).error().cause.detail == "no live decode instance");
  REQUIRE(core.add_instance(decode_instance(2, node_id{1})).has_value());
  CHECK(core.schedule(request_of(1, {}, 0), start).error().cause == ec::invalid_argument);
  CHECK(core.schedule(request_of(1, {}, 1), start).has_value());
  CHECK(core.counts().rejected_unavailable == 3);
}

TEST_CASE("load is charged when the decision is made: a burst spreads") {
  auto core = small_cluster(small_options(), 4, 2);
  std::map<worker_id, int> prefill, decode;
  for (std::uint64_t id = 1; id <= 40; ++id) {
    const auto p = core.schedule(request_of(id, {}, 500), start);
    ++prefill[p->prefill];
    ++decode[p->decode];
  }
  for (const auto& [worker, count] : prefill) CHECK(count == 10);
  for (const auto& [worker, count] : decode) CHECK(count == 20);
}

/// One tiny request per instance, so that nobody finds one empty.
void occupy(conductor_core& core, std::uint64_t count) {
  for (std::uint64_t i = 1; i <= count; ++i) REQUIRE(core.schedule(request_of(1000 + i, {}, 1), start));
}

TEST_CASE("time spent before counts towards the first token") {
  auto options = small_options();
  options.admission = admission_policy::early;
  options.ttft_slo = 2s;
  auto core = small_cluster(options);
  auto request = request_of(1, {}, 1000);
  request.arrival = start - 500ms;
  const auto p = core.schedule(request, start);
  CHECK(to_seconds(p->predicted_ttft) == doctest::Approx(1.5));
  occupy(core, 2);
  request.id = request_id{2};
  request.arrival = start - 1500ms;
  CHECK(core.schedule(request, start).error().stage == reject_stage::prefill);
}

TEST_CASE("a request may bring SLOs of its own") {
  auto options = small_options();
  options.admission = admission_policy::early;
  auto core = small_cluster(options);
  occupy(core, 3);
  auto request = request_of(1, {}, 1000);
  request.ttft_slo = 900ms;
  CHECK(core.schedule(request, start).error().stage == reject_stage::prefill);
  request.ttft_slo = 1100ms;
  request.tbt_slo = 1ms;
  CHECK(core.schedule(request, start).error().stage == reject_stage::decode);
  request.tbt_slo = 20ms;
  CHECK(core.schedule(request, start).has_value());
  CHECK(core.counts().rejected_ttft == 1);
  CHECK(core.counts().rejected_tbt == 1);
}

TEST_CASE("a refused request is charged nowhere") {
  auto options = small_options();
  options.admission = admission_policy::early;
  options.ttft_slo = 100ms;
  auto core = small_cluster(options, 1, 1);
  occupy(core, 1);
  CHECK(!core.schedule(request_of(1, {}, 1000), start).has_value());
  CHECK(core.charged_requests() == 1);
  for (const auto& v : core.cluster().views(start)) CHECK(v.charged == 1);
}

TEST_CASE("a request alone on its instances is never refused, whatever the estimates say") {
  for (const auto admission :
       {admission_policy::baseline, admission_policy::early, admission_policy::early_running,
        admission_policy::predictive, admission_policy::per_request, admission_policy::priced}) {
    CAPTURE(std::string{to_string(admission)});
    auto options = small_options();
    options.admission = admission;
    options.ttft_slo = options.tbt_slo = 1ms;  // out of reach
    auto core = small_cluster(options, 1, 1);
    for (std::uint64_t id = 1; id <= 200; ++id) {
      REQUIRE(core.schedule(request_of(id, {}, 20'000), start));
      CHECK(!core.schedule(request_of(1000 + id, {}, 20'000), start));
      core.finished(request_id{id}, start);
    }
  }
}

TEST_CASE("a calibration that was ten times too slow does not refuse for long, and predicts the truth soon") {
  auto options = small_options();
  options.admission = admission_policy::early;
  options.ttft_slo = 30s;
  auto core = small_cluster(options, 1, 1);  // says 1 ms a token; the truth is 0.1 ms
  auto now = start;
  double predicted = 0;
  int refused = 0;
  for (std::uint64_t id = 1; id <= 12; ++id) {
    const auto p = core.schedule(request_of(id, {}, 20'000), now);
    REQUIRE(p);
    predicted = to_seconds(p->predicted_ttft);
    // Somebody comes while it computes: 2 s of waiting, 2 s of its own.
    refused += !core.schedule(request_of(1000 + id, {}, 20'000), now).has_value();
    for (const auto done : {id, 1000 + id}) {
      now += 2s;
      core.first_token(request_id{done}, 20'000, 0, 2s, now);
      core.finished(request_id{done}, now);
    }
  }
  CHECK(refused <= 4);
  CHECK(predicted < 3);
  CHECK(predicted > 1.5);
}

TEST_CASE(
    "decode steps that were predicted too slow are put right by lone short answers, each counted once") {
  auto options = small_options();
  options.admission = admission_policy::early;
  options.tbt_slo = 20ms;
  auto core = small_cluster(options, 2, 1);
  const auto second = [&](std::uint64_t id, time_point now) {
    REQUIRE(core.schedule(request_of(id, {}, 100), now));
    const bool refused = !core.schedule(request_of(1000 + id, {}, 100), now).has_value();
    core.finished(request_id{id}, now);
    core.finished(request_id{1000 + id}, now);
    return refused;
  };
  REQUIRE(!second(1, start));
  // Its calibration says 11 ms for one sequence; it takes 22 ms, then 11 ms again. Answers are over when the
  // instance reports: nothing runs there.
  timed_step step{0, 1, 100, 22ms};
  for (int i = 0; i < 20; ++i) {
    ++step.number;
    core.report(worker_id{1001}, {0, 0, 0, step}, start + 1s);
  }
  CHECK(second(2, start + 2s));
  step.took = 11ms;
  ++step.number;
  for (int i = 0; i < 200; ++i) core.report(worker_id{1001}, {0, 0, 0, step}, start + 3s);
  CHECK(second(3, start + 4s));  // one step, told 200 times
  for (int i = 0; i < 100; ++i) {
    ++step.number;
    core.report(worker_id{1001}, {0, 0, 0, step}, start + 5s);
  }
  CHECK(!second(4, start + 6s));
}

TEST_CASE("a lost node takes its instances, its blocks and its charges along, and comes back empty") {
  auto core = small_cluster(small_options(), 2, 1);
  const auto keys = chain(1, 10);
  hold(core, 1, keys);
  REQUIRE(core.schedule(request_of(1, keys, 1050), start)->prefill == worker_id{1});
  CHECK(core.remove_node(node_id{1}) == std::vector{request_id{1}});
  CHECK(core.charged_requests() == 0);
  CHECK(core.counts().lost == 1);
  const auto p = core.schedule(request_of(2, keys, 1050), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(p->local_blocks == 0);
  CHECK(!p->source);
  REQUIRE(core.add_node(node_id{1}).has_value());
  REQUIRE(core.add_instance(prefill_instance(1, node_id{1})).has_value());
  CHECK(core.schedule(request_of(3, keys, 1050), start)->local_blocks == 0);
}

TEST_CASE("a resync forgets what a node held and nothing else") {
  auto core = small_cluster(small_options(), 2, 1);
  const auto keys = chain(1, 10);
  hold(core, 1, keys);
  hold(core, 2, std::span{keys}.first(2));
  core.forget_blocks(node_id{1});
  auto p = core.schedule(request_of(1, keys, 1050), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(p->local_blocks == 2);
  hold(core, 1, keys);
  core.failed(request_id{1}, start);
  p = core.schedule(request_of(2, keys, 1050), start);
  CHECK(p->prefill == worker_id{1});
  CHECK(p->local_blocks == 10);
}

TEST_CASE("silent nodes and forgotten requests expire") {
  auto options = small_options();
  options.heartbeat_limit = 10s;
  options.charge_limit = 60s;
  auto core = small_cluster(options, 2, 1);
  REQUIRE(core.schedule(request_of(1, {}, 100), start)->prefill == worker_id{1});
  REQUIRE(core.schedule(request_of(2, {}, 100), start)->prefill == worker_id{2});
  core.heartbeat(node_id{2}, start + 9s);
  core.heartbeat(node_id{1001}, start + 9s);
  auto gone = core.expire(start + 12s);
  CHECK(gone.nodes == std::vector{node_id{1}});
  CHECK(gone.requests == std::vector{request_id{1}});
  for (const std::uint64_t n : {2, 1001}) core.heartbeat(node_id{n}, start + 70s);
  gone = core.expire(start + 70s);
  CHECK(gone.nodes.empty());
  CHECK(gone.requests == std::vector{request_id{2}});
  CHECK(core.charged_requests() == 0);
  CHECK(core.counts().expired == 1);
}

TEST_CASE("a draining instance finishes what it has and gets nothing new") {
  auto core = small_cluster(small_options(), 2, 1);
  const auto keys = chain(1, 10);
  hold(core, 1, keys);
  REQUIRE(core.schedule(request_of(1, keys, 1050), start)->prefill == worker_id{1});
  REQUIRE(core.set_state(worker_id{1}, instance_state::draining).has_value());
  const auto p = core.schedule(request_of(2, keys, 1050), start);
  CHECK(p->prefill == worker_id{2});
  CHECK(p->source == node_id{1});  // its blocks are still good
  core.first_token(request_id{1}, 50, 1000, 50ms, start + 1s);
  core.finished(request_id{1}, start + 2s);
  CHECK(core.counts().finished == 1);
}

TEST_CASE("words about unknown workers, nodes and requests change nothing") {
  auto core = small_cluster(small_options());
  core.report(worker_id{99}, {}, start);
  core.heartbeat(node_id{99}, start);
  core.blocks_held(node_id{99}, chain(1, 1), storage_tier::dram);
  core.blocks_gone(node_id{99}, chain(1, 1));
  core.forget_blocks(node_id{99});
  core.first_token(request_id{99}, 1, 1, 1s, start);
  core.finished(request_id{99}, start);
  CHECK(core.remove_node(node_id{99}).empty());
  CHECK(core.index().size() == 0);
  CHECK(core.counts().finished == 0);
  CHECK(core.load_of(worker_id{99}, start) == 0);
}

TEST_CASE("load is the predicted time over the SLO") {
  auto core = small_cluster(small_options(), 1, 1);
  CHECK(core.load_of(worker_id{1}, start) == 0);
  CHECK(core.load_of(worker_id{1001}, start) == 0);
  REQUIRE(core.schedule(request_of(1, {}, 15'000), start).has_value());
  CHECK(core.load_of(worker_id{1}, start) == doctest::Approx(0.5));
  CHECK(core.load_of(worker_id{1001}, start) == doctest::Approx(0.11));
}

TEST_CASE("an engine that others keep busy gets what no idle one can take") {
  auto options = small_options();
  options.coupled = true;
  conductor_core core{options};
  for (std::uint64_t i = 1; i <= 2; ++i) {
    static_cast<void>(core.add_node(node_id{i}, start));
    REQUIRE(core.add_instance(prefill_instance(i, node_id{i})));
    REQUIRE(core.add_instance(decode_instance(1000 + i, node_id{i})));
  }
  std::uint64_t id = 0;
  const auto next = [&] {
    const auto p = core.schedule(request_of(++id, {}, 100), start);
    REQUIRE(p.has_value());
    core.finished(request_id{id}, start);
    return p->decode;
  };
  instance_load load;
  load.others = 6;
  core.report(worker_id{1001}, load, start);
  for (int i = 0; i < 8; ++i) CHECK(next() == worker_id{1002});
  load.others = 0;
  core.report(worker_id{1001}, load, start);
  load.others = 6;
  core.report(worker_id{1002}, load, start);
  for (int i = 0; i < 8; ++i) CHECK(next() == worker_id{1001});
  // Its batch is as large as all that decode there.
  const auto& decode = core.cluster().decode();
  const auto busy = core.cluster().decode().select(100, std::array{worker_id{1001}}).slot;
  CHECK(decode.desc(busy).id == worker_id{1002});
  CHECK(decode.step(busy, 0, false) > decode.step(decode.select(100, {}).slot, 0, false));
}
