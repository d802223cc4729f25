// What the gateway does when an attempt fails: another one, unseen by the client, or the truth.

#include "tests/actors/gateway_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

TEST_CASE_FIXTURE(gateway_world, "a first token that never comes is made again, even if others overtook it") {
  open();
  submit_one();
  const auto id = placed();
  more(id, 1, {2});
  tell(peer_down_atom_v, prefill_node);
  CHECK(decode->cancels == std::vector{id});
  tell(peer_up_atom_v, nodes[0]);
  const auto again = placed(1);
  first(again, 1);
  more(again, 1, {2});
  CHECK(sink->tokens == ids{1, 2});
}

TEST_CASE_FIXTURE(gateway_world,
                  "a retriable failure is placed again with the tokens so far, unseen by the client") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2});
  broke(id, true);
  CHECK(place->stages_of(id) == stages{request_stage::first_token, failed_stage});
  CHECK(prefill->cancels == std::vector{id});
  CHECK(decode->cancels == std::vector{id});
  const auto again = placed(1);
  CHECK(again.request == id.request);
  CHECK(again.attempt == 1);
  auto all = make(sink).prompt;
  all.insert(all.end(), {1, 2});
  CHECK(place->asked[1].prompt_tokens == 12);
  CHECK(place->asked[1].max_tokens == 48);
  CHECK(decode->jobs[1].tokens == all);
  CHECK(decode->jobs[1].prompt_tokens == 10);
  CHECK(prefill->jobs[1].keys == block_keys(all, 4, root_key(context->root, context->layout)));
  // Late words of the old attempt are nobody's.
  more(id, 2, {99});
  first(id, 98);
  broke(id, false);
  CHECK(sink->tokens == ids{1, 2});
  first(again, 3);
  more(again, 3, {4}, finish_reason::stop);
  CHECK(sink->tokens == ids{1, 2, 3, 4});
  CHECK(sink->end == finish_reason::stop);
}

TEST_CASE_FIXTURE(gateway_world, "a failure that would repeat itself is told to the client at once") {
  open();
  submit_one();
  const auto id = placed();
  broke(id, false);
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::out_of_space);
  CHECK(place->stages_of(id) == stages{failed_stage});
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a new attempt asks for another decode worker than those that failed") {
  open();
  submit_one();
  CHECK(place->asked.at(0).avoid.empty());
  broke(placed(), true);
  placed(1);
  CHECK(place->asked.at(1).avoid == std::vector{decode_id});
}

TEST_CASE_FIXTURE(gateway_world, "a client whose every attempt failed is told to come again, and why") {
  open();
  submit_one();
  const auto start = sys.clock().now();
  for (std::size_t n = 0; !sink->over(); ++n) {
    broke(placed(n), true, {ec::io_error, "the KV could not be delivered"});
    REQUIRE(n < 100);
  }
  CHECK(sink->cause->code == ec::unavailable);
  CHECK(sink->cause->detail.find("the KV could not be delivered") != std::string::npos);
  CHECK(sink->retry_after >= 1s);
  // Long enough for a host to come back, not for a client to give up.
  CHECK(sys.clock().now() - start > 10s);
  CHECK(sys.clock().now() - start < 30s);
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a request that takes its workers down is not passed on for ever") {
  open();
  submit_one();
  std::size_t lost = 0;
  for (; !sink->over(); ++lost) {
    REQUIRE(lost < 10);
    placed(lost);
    tell(peer_down_atom_v, decode_node);
    tell(peer_up_atom_v, nodes[1]);
  }
  CHECK(lost == 4);
  CHECK(sink->cause->code == ec::unavailable);
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "losing the prefill node before the first token costs an attempt") {
  open();
  submit_one();
  const auto id = placed();
  tell(peer_down_atom_v, prefill_node);
  // The lost one is told, too, as it may be back already, over a new link.
  CHECK(prefill->cancels == std::vector{id});
  CHECK(decode->cancels == std::vector{id});
  CHECK(place->stages_of(id) == stages{failed_stage});
  tell(peer_up_atom_v, nodes[0]);
  CHECK(placed(1).attempt >= 1);
  CHECK(!sink->over());
}

TEST_CASE_FIXTURE(gateway_world, "losing the prefill node once decode has answered costs nothing") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2});
  tell(peer_down_atom_v, prefill_node);
  CHECK(decode->cancels.empty());
  more(id, 2, {3}, finish_reason::stop);
  CHECK(sink->tokens == ids{1, 2, 3});
  CHECK(sink->end == finish_reason::stop);
}

TEST_CASE_FIXTURE(gateway_world,
                  "losing the decode node in mid-answer goes on elsewhere with every token once") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2, 3});
  tell(peer_down_atom_v, decode_node);
  CHECK(decode->cancels == std::vector{id});
  tell(peer_up_atom_v, nodes[1]);
  const auto again = placed(1);
  CHECK(decode->jobs[1].tokens.size() == 13);
  first(again, 4);
  more(again, 4, {5}, finish_reason::length);
  CHECK(sink->tokens == ids{1, 2, 3, 4, 5});
  CHECK(sink->report->output_tokens == 5);
}

TEST_CASE_FIXTURE(
    gateway_world,
    "a placement on a worker that this gateway cannot reach yet is given back and asked again") {
  open();
  tell(peer_down_atom_v, decode_node);
  submit_one();
  REQUIRE(place->asked.size() == 1);
  CHECK(place->stages_of(place->asked[0].id) == stages{failed_stage});
  CHECK(prefill->jobs.empty());
  tell(peer_up_atom_v, nodes[1]);
  placed();
  CHECK(!sink->over());
}

TEST_CASE_FIXTURE(
    gateway_world,
    "a request that waits in the conductor's queue asks on, as the same attempt, and never fails") {
  int asked = 0;
  const auto place_it = place->answer;
  place->answer = [&](const schedule_job& job) {
    placement_msg queued;
    queued.id = job.id;
    queued.queued = true;
    return ++asked < 5 ? queued : place_it(job);
  };
  open();
  submit_one(100s);
  const auto id = placed();
  CHECK(id.attempt == 0);
  REQUIRE(place->asked.size() == 5);
  // How long it has waited in all goes along, whichever clock the conductor has.
  CHECK(place->asked[0].age_ns >= 100'000'000'000);
  CHECK(place->asked[4].age_ns >= place->asked[0].age_ns);
  CHECK(decode->jobs[0].age_ns >= 100'000'000'000);
  CHECK(!sink->over());
}

TEST_CASE_FIXTURE(gateway_world, "a client that leaves while its request waits takes it out of the queue") {
  place->silent = true;
  open();
  const auto client = submit_one();
  REQUIRE(place->asked.size() == 1);
  tell(cancel_atom_v, client);
  CHECK(place->stages_of(place->asked[0].id) == stages{request_stage::cancelled});
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world,
                  "a conductor that comes back late finds a request that waited no less patient") {
  int asked = 0;
  const auto place_it = place->answer;
  place->answer = [&](const schedule_job& job) {
    placement_msg m = place_it(job);
    if (++asked == 1) {
      m.queued = true;
    } else if (asked == 2) {
      m.rejection = {ec::unavailable, "no live decode instance"};  // it restarted: workers join in a moment
    }
    return m;
  };
  open();
  submit_one(60s);
  placed();
  CHECK(!sink->over());
}

TEST_CASE_FIXTURE(gateway_world, "an answer that has begun asks for a place that nobody may refuse") {
  open();
  submit_one();
  const auto id = placed();
  CHECK(!place->asked.at(0).resumed);
  first(id, 1);
  broke(id, true);
  placed(1);
  CHECK(place->asked.at(1).resumed);
}

TEST_CASE_FIXTURE(
    gateway_world,
    "what decode refuses is told with a time to come back, and what it wasted to the conductor") {
  open();
  submit_one();
  const auto id = placed();
  attempt_failed m;
  m.id = id;
  m.cause = {ec::slo_unreachable, "predicted TBT 400 ms exceeds 300 ms"};
  m.retriable = false;
  m.wasted_prefill_tokens = 6;
  m.retry_after_ns = 2'500'000'000;
  tell(failed_atom_v, m);
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::slo_unreachable);
  CHECK(sink->retry_after == 3s);
  CHECK(place->stages_of(id) == stages{request_stage::refused});
  CHECK(place->events.back().wasted_tokens == 6);
}

TEST_CASE_FIXTURE(gateway_world, "a request that devices die with is not passed on for ever") {
  open();
  submit_one();
  std::size_t lost = 0;
  for (; !sink->over(); ++lost) {
    REQUIRE(lost < 10);
    attempt_failed m;
    m.id = placed(lost);
    m.cause = {ec::unavailable, "device: the card is gone"};
    m.lost_device = true;
    tell(failed_atom_v, m);
  }
  CHECK(lost == 4);
  CHECK(sink->cause->code == ec::unavailable);
  CHECK(held() == 0);
}
