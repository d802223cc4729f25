// The conductor without a mailbox; tests/actors/conductor_test.cpp has the same through messages.

#include "runtime/request/cluster_core.hpp"

#include <doctest/doctest.h>

#include <bit>

#include "runtime/base/request_ids.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id worker_node{1}, far_gateway{2};

struct office {
  explicit office(leadership_core lead = {{}, 0, 1, {}}) : core(options(), {}, {}, std::move(lead)) {
    const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
    member_card workers{worker_node, {}, true, false};
    workers.workers.push_back({worker_id{11}, worker_node, worker_role::prefill, 64, samples, 0});
    workers.workers.push_back({worker_id{12}, worker_node, worker_role::decode, 1, samples, 0});
    REQUIRE(core.join(workers, now));
    REQUIRE(core.join({far_gateway, {}, false, false}, now));
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
  cluster_core core;
};

}  // namespace

TEST_CASE_FIXTURE(office,
                  "what a gateway still waits for when it leaves is never placed, so nothing stays charged") {
  for (std::uint64_t r = 1; r <= 6; ++r) ask(r, worker_node);
  const auto room = placed();
  REQUIRE(room < 6);
  REQUIRE(core.queue().size() == 6 - room);
  ask(7, far_gateway);
  core.leave(far_gateway, now);
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
  ask(1, far_gateway);
  REQUIRE(placed() == 1);
  node_report report;
  report.node = worker_node;
  report.workers = {worker_load{.id = worker_id{11}, .failure = "the card is gone"},
                    worker_load{.id = worker_id{12}}};
  REQUIRE(core.report(report, now).member);
  CHECK(core.scheduler().charged_requests() == 0);
  ask(2, far_gateway);
  CHECK(placed() == 0);
  // Its process has the device back: it joins as at first.
  const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
  REQUIRE(core.join(
      {node_id{3}, {{worker_id{13}, node_id{3}, worker_role::prefill, 64, samples, 0}}, true, false}, now));
  ask(3, far_gateway);
  CHECK(placed() == 1);
}

TEST_CASE_FIXTURE(office, "a worker that is away gets nothing until it is back, and is told of once") {
  node_report report;
  report.node = worker_node;
  report.workers = {worker_load{.id = worker_id{11}, .away = "refused"},
                    worker_load{.id = worker_id{12}, .away = "refused"}};
  const auto turns = [&] {
    std::vector<std::string> out;
    for (const auto& a : core.take_actions())
      if (const auto* turn = std::get_if<log_turn>(&a)) out.push_back(turn->stands + turn->why);
    return out;
  };
  core.report(report, now);
  core.report(report, now);
  CHECK(turns() == std::vector<std::string>{"awayrefused", "awayrefused"});
  ask(1, far_gateway);
  CHECK(placed() == 0);
  for (auto& worker : report.workers) worker.away.clear();
  core.report(report, now);
  ask(2, far_gateway);
  CHECK(placed() >= 1);
  core.report(report, now);
  CHECK(turns().empty());
}

TEST_CASE_FIXTURE(office, "on a node that was told to stop nothing is placed, and what runs there goes on") {
  const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
  member_card second{node_id{3}, {}, true, false};
  second.workers.push_back({worker_id{31}, node_id{3}, worker_role::prefill, 64, samples, 0});
  second.workers.push_back({worker_id{32}, node_id{3}, worker_role::decode, 64, samples, 0});
  REQUIRE(core.join(second, now));
  ask(1, far_gateway);
  REQUIRE(placed() == 1);
  node_report told{.node = worker_node};
  told.draining = true;
  const auto first = core.report(told, now);
  CHECK(first.draining);
  CHECK_FALSE(first.last);
  CHECK(core.scheduler().charged_requests() == 1);  // what runs is not forgotten
  for (std::uint64_t r = 2; r <= 9; ++r) ask(r, far_gateway);
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

namespace {

/// The second of two conductors, at a node of its own, and voters that do as they are told.
struct second_office : office {
  second_office() : office(leadership_core{node_id{3}, 1, 2, 600ms}) {
    REQUIRE(core.join({node_id{3}, {}, false, false, 2, "second"}, now));
    REQUIRE(core.join({node_id{4}, {}, false, false, 1, "first"}, now));
    core.take_actions();
  }
  /// Every claim is granted at once. @returns what else the core wants.
  std::vector<conductor_action> obeyed() {
    std::vector<conductor_action> others;
    for (auto actions = core.take_actions(); !actions.empty(); actions = core.take_actions()) {
      for (auto& action : actions) {
        const auto* claim = std::get_if<claim_lead>(&action);
        if (claim == nullptr) others.push_back(std::move(action));
        else
          core.answered(
              claim->member, claim->claim, now,
              {true, claim->claim.term, {}, {claim->claim.voters.term, claim->claim.voters.version, {}, {}}},
              now);
      }
    }
    return others;
  }
  void lead() {
    for (int i = 0; i < 20; ++i) {
      core.lead_tick(now += 100ms);
      obeyed();
    }
    REQUIRE(core.status(now).lead.leader == "second");
  }
};

const placement_msg& answer_of(const std::vector<conductor_action>& actions) {
  for (const auto& a : actions) {
    if (const auto* answer = std::get_if<answer_question>(&a)) return answer->where;
  }
  FAIL("no answer");
  static const placement_msg none;
  return none;
}

}  // namespace

TEST_CASE_FIXTURE(second_office,
                  "a conductor that stands by places nothing and says why, and knows what shards hold") {
  block_event_batch held{worker_node, 0, true, 0, {}};
  block_event event;
  event.name.key = hash_text128("a block");
  held.events.push_back(event);
  core.blocks(held);
  ask(1, far_gateway);
  const auto none = answer_of(core.take_actions());
  CHECK(none.rejection.code == ec::unavailable);
  CHECK(none.rejection.detail.starts_with("this conductor knows of no leader"));
  CHECK(core.status(now).lead.problem == none.rejection.detail);
  lead();
  CHECK(core.status(now).index.blocks == 1);
  ask(2, far_gateway);
  const auto placed = answer_of(obeyed());
  CHECK(placed.rejection.code == ec::none);
  CHECK(placed.term == core.status(now).lead.term);
  CHECK(core.status(now).lead.standbys == std::vector<std::string>{"first"});
}

TEST_CASE_FIXTURE(
    second_office,
    "who loses the lead tells those that wait to ask again, and comes back without old charges") {
  lead();
  for (std::uint64_t r = 1; r <= 40; ++r) ask(r, far_gateway);
  obeyed();
  REQUIRE(core.scheduler().charged_requests() > 0);
  REQUIRE(core.questions().askers() > 0);
  const auto term = core.status(now).lead.term;
  core.heard({term + 1, node_id{4}, true, {}}, now);
  CHECK(core.questions().askers() == 0);
  CHECK_FALSE(core.status(now).lead.problem.empty());
  core.take_actions();
  for (int i = 0; i < 20; ++i) {
    core.lead_tick(now += 100ms);
    obeyed();
  }
  CHECK(core.status(now).lead.term > term + 1);
  CHECK(core.scheduler().charged_requests() == 0);
}

TEST_CASE("a conductor that adapts has its last minutes played, and goes over to the rule that did better") {
  auto options = office::options();
  options.admission = admission_policy::adaptive;
  options.ttft_slo = 1s;
  cluster_core core{options, {}};
  auto now = time_point{} + 1h;
  const std::vector<timing_point> samples{{4, 0, 0.01}, {64, 0, 0.04}, {64, 64, 0.05}};
  member_card workers{worker_node, {}, true, false};
  workers.workers.push_back({worker_id{11}, worker_node, worker_role::prefill, 64, samples, 0});
  workers.workers.push_back({worker_id{12}, worker_node, worker_role::decode, 1, samples, 0});
  REQUIRE(core.join(workers, now));
  core.tick(now);
  for (std::uint64_t request = 1; request <= 50; ++request) {
    schedule_job job;
    job.id = {request_id{request}, 0};
    job.prompt_tokens = 10;
    job.max_tokens = 10;
    job.gateway = worker_node;
    core.ask(job, request, now += 100ms);
  }
  CHECK(core.status(now).admission.rule == "queue");
  core.tick(now += options.shadow.every);
  std::size_t plays = 0;
  for (const auto& a : core.take_actions()) {
    const auto* play = std::get_if<play_minutes>(&a);
    if (play == nullptr) continue;
    ++plays;
    CHECK(play->question.requests.size() == 50);
  }
  REQUIRE(plays == 1);
  const admission_rule priced{admission_policy::priced};
  const played_minutes played{{{{}, 10, 50}, {priced, 40, 50}}, {{what_if::more_decode, 45, 50}}};
  core.played(played, 1ms, now);
  const auto shown = core.status(now).admission;
  CHECK(shown.rule == "priced");
  CHECK(shown.changes == 1);
  REQUIRE(shown.played.size() == 2);
  CHECK(shown.played[1].with == "priced");
  CHECK(std::bit_cast<double>(shown.played[1].share_bits) == doctest::Approx(0.8));
  REQUIRE(shown.what_ifs.size() == 1);
  CHECK(shown.what_ifs[0].with == "one more decode instance");
  CHECK(std::bit_cast<double>(shown.what_ifs[0].share_bits) == doctest::Approx(0.9));
  bool told = false;
  for (const auto& a : core.take_actions()) {
    const auto* turn = std::get_if<log_turn>(&a);
    told = told || (turn != nullptr && turn->event == "admission" && turn->stands == "priced");
  }
  CHECK(told);
}
