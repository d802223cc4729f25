// Requests that wait at the conductor, as gateways see it: they are answered when there is room, keep their
// place while they ask again, and leave nothing behind when nobody does.

#include <doctest/doctest.h>

#include "actors/conductor.hpp"
#include "runtime/api/cluster_view.hpp"
#include "tests/actors/silent_node.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

/// A conductor with one prefill and one decode instance of a batch of 2, which takes 4 requests.
struct queue_world : testing::actor_fixture<caf::id_block::mooncaf> {
  explicit queue_world(admission_policy admission = admission_policy::queue, std::size_t max_queued = 100) {
    conductor_setup setup;
    setup.core.block_tokens = 4;
    setup.core.admission = admission;
    setup.queue.max_queued = max_queued;
    setup.fingerprint = fingerprint;
    under_test = keep(sys.spawn<conductor>(setup));
    node_info n;
    n.id = node_id{100};
    n.name = "node";
    n.fingerprint = fingerprint;
    n.node = caf::actor_cast<caf::actor>(keep(sys.spawn(silent_node)));
    const std::vector<std::array<std::int64_t, 3>> samples{
        {16, 0, 10'000'000}, {64, 0, 40'000'000}, {64, 64, 50'000'000}};
    n.workers = {{worker_id{101}, worker_role::prefill, n.node, 64, samples},
                 {worker_id{102}, worker_role::decode, n.node, 2, samples}};
    REQUIRE(ask<std::vector<node_info>>(under_test, join_atom_v, n));
  }

  /// A question whose answer may come later: `answer(n)` says what came.
  void submit(std::uint64_t request, duration age = {}) {
    schedule_job job;
    job.id = {request_id{request}, 0};
    job.prompt_tokens = 10;
    job.max_tokens = 10;
    job.age_ns = age.count();
    askers.emplace(request, std::make_unique<caf::scoped_actor>(sys, true));
    pending.emplace(request, (*askers[request])->request(under_test, caf::infinite, schedule_atom_v, job));
    run();
  }
  std::optional<placement_msg> answer(std::uint64_t request) {
    std::optional<placement_msg> out;
    if (!(*askers.at(request))->has_next_message()) return out;
    pending.at(request).receive([&](placement_msg& m) { out = m; },
                                [&](caf::error& e) { FAIL_CHECK(caf::to_string(e)); });
    askers.erase(request);
    pending.erase(request);
    return out;
  }
  bool placed(std::uint64_t request) {
    const auto a = answer(request);
    return a && a->rejection.code == ec::none && !a->queued && a->prefill == worker_id{101};
  }
  void tell(request_stage stage, std::uint64_t request, std::uint32_t wasted = 0) {
    request_event e;
    e.id = {request_id{request}, 0};
    e.stage = stage;
    e.new_tokens = 10;
    e.compute_ns = 10'000'000;
    e.wasted_tokens = wasted;
    caf::anon_send(under_test, event_atom_v, e);
    run();
  }
  std::uint64_t count(const std::string& name) {
    const auto json = cluster_json(ask<cluster_status>(under_test, status_atom_v).value()).value();
    const auto at = json.find("\"" + name + "\":");
    REQUIRE_MESSAGE(at != std::string::npos, name);
    return std::stoull(json.substr(at + name.size() + 3));
  }
  /// Four of them fill the cluster.
  void fill() {
    for (std::uint64_t r = 1; r <= 4; ++r) {
      submit(r);
      REQUIRE(placed(r));
    }
  }

  using request_handle = decltype(std::declval<caf::scoped_actor&>()->request(
      std::declval<conductor_actor&>(), caf::infinite, schedule_atom_v, std::declval<schedule_job&>()));
  std::map<std::uint64_t, std::unique_ptr<caf::scoped_actor>> askers;
  std::map<std::uint64_t, request_handle> pending;
  conductor_actor under_test;
};

}  // namespace

TEST_CASE_FIXTURE(queue_world,
                  "a request that there is no room for is answered when another one ends, in order") {
  fill();
  submit(5);
  submit(6);
  CHECK(!answer(5));
  CHECK(count("waiting") == 2);
  tell(request_stage::first_token, 1);
  tell(request_stage::finished, 1);
  CHECK(placed(5));
  CHECK(!answer(6));
  tell(request_stage::cancelled, 2);
  CHECK(placed(6));
  CHECK(count("waiting") == 0);
  CHECK(count("charged_requests") == 4);
}

TEST_CASE_FIXTURE(queue_world,
                  "who waits for long asks again and keeps its place, also before those that came later") {
  fill();
  submit(5);
  advance_time(3s);
  const auto word = answer(5);
  REQUIRE(word);
  CHECK(word->queued);
  submit(6);
  submit(5, 3s);
  CHECK(count("waiting") == 2);
  tell(request_stage::failed, 1);
  CHECK(placed(5));
  CHECK(!answer(6));
}

TEST_CASE_FIXTURE(queue_world,
                  "a place that comes free between two questions is kept for the one who had its turn") {
  fill();
  submit(5);
  advance_time(3s);
  REQUIRE(answer(5)->queued);
  tell(request_stage::failed, 1);
  CHECK(count("charged_requests") == 4);
  submit(5, 3s);
  CHECK(placed(5));
  CHECK(count("charged_requests") == 4);
}

TEST_CASE_FIXTURE(queue_world, "who does not ask again is forgotten, with what it was charged") {
  fill();
  submit(5);
  submit(6);
  advance_time(3s);
  REQUIRE(answer(5)->queued);
  REQUIRE(answer(6)->queued);
  tell(request_stage::failed, 1);
  CHECK(count("charged_requests") == 4);  // 5 has its turn, and is not there
  for (int i = 0; i < 24; ++i) advance_time(500ms);
  CHECK(count("waiting") == 0);
  CHECK(count("charged_requests") == 3);
}

TEST_CASE_FIXTURE(queue_world, "a client that leaves takes its request out of the queue") {
  fill();
  submit(5);
  submit(6);
  tell(request_stage::cancelled, 5);
  CHECK(count("waiting") == 1);
  CHECK(count("cancelled") == 1);
  CHECK(answer(5)->queued);  // nothing was decided; its gateway has forgotten it
  tell(request_stage::finished, 1);
  CHECK(placed(6));
}

TEST_CASE_FIXTURE(queue_world, "a request that was placed again has its first arrival's place in the queue") {
  fill();
  submit(5);
  submit(6, 10s);
  tell(request_stage::finished, 1);
  CHECK(placed(6));
  CHECK(!answer(5));
}

TEST_CASE("a full queue is told as such, with a time to come back") {
  queue_world w{admission_policy::queue, 2};
  w.fill();
  for (std::uint64_t r = 5; r <= 7; ++r) w.submit(r);
  const auto refused = w.answer(7);
  REQUIRE(refused);
  CHECK(refused->rejection.code == ec::overloaded);
  CHECK(refused->retry_after_ns >= 1'000'000'000);
  CHECK(w.count("rejected_queue_full") == 1);
  CHECK(w.count("waiting") == 2);
}

TEST_CASE("only admission by SLO has the decode side look again, and what that wastes is counted") {
  for (const auto admission : {admission_policy::none, admission_policy::queue, admission_policy::baseline}) {
    queue_world w{admission};
    w.submit(1);
    const auto placed = w.answer(1);
    REQUIRE(placed);
    CHECK(placed->check_at_decode == (admission == admission_policy::baseline));
    w.tell(request_stage::refused, 1, 10);
    CHECK(w.count("rejected_at_decode") == 1);
    CHECK(w.count("wasted_prefill_tokens") == 10);
    CHECK(w.count("charged_requests") == 0);
  }
}
