// The conductor without a mailbox; tests/actors/conductor_test.cpp has the same through messages.

#include "runtime/request/cluster_core.hpp"

#include <doctest/doctest.h>

#include "runtime/base/request_ids.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id worker_node{1}, gateway_node{2};

struct office {
  office() {
    const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
    member_card workers{worker_node, {}, true, false};
    workers.workers.push_back({worker_id{11}, worker_node, worker_role::prefill, 64, samples, 0});
    workers.workers.push_back({worker_id{12}, worker_node, worker_role::decode, 1, samples, 0});
    REQUIRE(core.join(workers, now));
    REQUIRE(core.join({gateway_node, {}, false, false}, now));
  }
  static conductor_options options() {
    conductor_options out;
    out.admission = admission_policy::queue;
    out.tbt_slo = std::chrono::milliseconds(100);
    out.balancing_threshold = 4;
    out.decode_span = std::chrono::seconds(20);
    out.block_tokens = 4;
    return out;
  }
  void ask(std::uint64_t request, node_id from) {
    schedule_job job;
    job.id = {request_id{request}, 0};
    job.prompt_tokens = 10;
    job.max_tokens = 10;
    job.gateway = from;
    core.ask(job, request, now);
  }
  std::size_t placed() {
    std::size_t n = 0;
    for (const auto& a : core.take_actions()) {
      const auto* answer = std::get_if<answer_question>(&a);
      n += answer != nullptr && answer->where.rejection.code == ec::none && !answer->where.queued;
    }
    return n;
  }

  time_point now = time_point{} + 1h;
  cluster_core core{options(), {}};
};

}  // namespace

TEST_CASE_FIXTURE(office,
                  "what a gateway still waits for when it leaves is never placed, so nothing stays charged") {
  for (std::uint64_t r = 1; r <= 6; ++r) ask(r, worker_node);
  const auto room = placed();
  REQUIRE(room < 6);
  REQUIRE(core.queue().size() == 6 - room);
  ask(7, gateway_node);
  core.leave(gateway_node, now);
  for (std::uint64_t r = 1; r <= 6; ++r) {
    request_event e;
    e.id = {request_id{r}, 0};
    e.stage = request_stage::failed;
    core.event(e, now);
  }
  CHECK(core.scheduler().charged_requests() == 0);
  CHECK(core.questions().askers() == 0);
}

TEST_CASE("a journal knows of which request a charge is") {
  for (const std::uint64_t request : {std::uint64_t{1}, (std::uint64_t{1} << 57) - 1}) {
    for (std::uint32_t attempt = 0; attempt < 70; ++attempt) {
      const attempt_id id{request_id{request}, attempt};
      CHECK(request_of_try(schedule_core::charge_id(id)) == id.request);
    }
  }
}

TEST_CASE_FIXTURE(office, "a gateway that is no member gets no place") {
  ask(1, node_id{99});
  const auto actions = core.take_actions();
  const auto& refused = std::get<answer_question>(actions.back()).where;
  CHECK(refused.rejection.code == ec::unavailable);
  CHECK(core.scheduler().charged_requests() == 0);
}

TEST_CASE_FIXTURE(office,
                  "a worker whose device failed gets nothing more, and what it had weighs on nobody") {
  ask(1, gateway_node);
  REQUIRE(placed() == 1);
  node_report report;
  report.node = worker_node;
  report.workers = {worker_load{.id = worker_id{11}, .failure = "the card is gone"},
                    worker_load{.id = worker_id{12}}};
  REQUIRE(core.report(report, now).member);
  CHECK(core.scheduler().charged_requests() == 0);
  ask(2, gateway_node);
  CHECK(placed() == 0);
  // Its process has the device back: it joins as at first.
  const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
  REQUIRE(core.join(
      {node_id{3}, {{worker_id{13}, node_id{3}, worker_role::prefill, 64, samples, 0}}, true, false}, now));
  ask(3, gateway_node);
  CHECK(placed() == 1);
}

TEST_CASE_FIXTURE(office, "on a node that was told to stop nothing is placed, and what runs there goes on") {
  const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
  member_card second{node_id{3}, {}, true, false};
  second.workers.push_back({worker_id{31}, node_id{3}, worker_role::prefill, 64, samples, 0});
  second.workers.push_back({worker_id{32}, node_id{3}, worker_role::decode, 64, samples, 0});
  REQUIRE(core.join(second, now));
  ask(1, gateway_node);
  REQUIRE(placed() == 1);
  node_report told{.node = worker_node};
  told.draining = true;
  const auto first = core.report(told, now);
  CHECK(first.draining);
  CHECK_FALSE(first.last);
  CHECK(core.scheduler().charged_requests() == 1);  // what runs is not forgotten
  for (std::uint64_t r = 2; r <= 9; ++r) ask(r, gateway_node);
  for (const auto& a : core.take_actions()) {
    if (const auto* answer = std::get_if<answer_question>(&a); answer && !answer->where.queued) {
      CHECK(answer->where.prefill == worker_id{31});
      CHECK(answer->where.decode == worker_id{32});
    }
  }
  told.node = node_id{3};
  CHECK(core.report(told, now).last);
  told.draining = false;  // an older report that was overtaken
  CHECK(core.report(told, now).draining);
  REQUIRE(core.join(second, now));  // its successor under the same id, or it was dropped and lives
  CHECK_FALSE(core.report(told, now).draining);
}
