// Who owns an attempt's blocks at the decode side, and that whoever does gives them back.

#include "runtime/request/decode_attempts.hpp"

#include <doctest/doctest.h>

#include "runtime/sched/block_hash.hpp"
#include "tests/runtime/request/nodes.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

struct attempts_world {
  work_order job(node_id where_prefill = prefill_node) {
    work_order out;
    out.id = {request_id{++requests}, 0};
    out.tokens = {1, 2, 3, 4, 5};
    out.keys = block_keys(out.tokens, 4, out.root);
    out.placement.prefill_node = where_prefill;
    out.gateway_node = gateway_node;
    return out;
  }
  template <class T>
  std::size_t count() const {
    std::size_t n = 0;
    for (const auto& a : seen) n += std::holds_alternative<T>(a);
    return n;
  }
  /// The actions since the last call.
  void look() { seen = attempts.take_actions(); }
  prefill_done done(const work_order& job, std::uint32_t transfers, std::vector<slot_index> slots = {}) {
    prefill_done out;
    out.id = job.id;
    out.transfers = transfers;
    out.slots = std::move(slots);
    out.checksums = {77};
    return out;
  }
  /// Up to the slots that the prefill side may write.
  void receive(const work_order& j) {
    attempts.take(j, true);
    look();
    REQUIRE(count<decode_action::pin>() == 1);
    attempts.pinned(j.id.owner(), std::get<decode_action::pin>(seen[0]).what.turn, {});
    look();
    REQUIRE(count<decode_action::reserve>() == 1);
    attempts.reserved(j.id.owner(), std::vector<slot_index>{8, 9}, 4);
    look();
    REQUIRE(count<decode_action::receive>() == 1);
  }

  decode_attempts attempts{here, 4, 2};
  attempt_actions seen;
  std::uint64_t requests = 0;
  time_point now = time_point{} + 1h;
};

}  // namespace

TEST_CASE_FIXTURE(attempts_world, "KV that has landed is confirmed, named and may be decoded") {
  const auto j = job();
  receive(j);
  attempts.prefill_finished(done(j, 3), now);
  look();
  CHECK(count<decode_action::expect>() == 1);
  attempts.landed(j.id.owner(), true);
  look();
  CHECK(count<decode_action::confirm>() == 1);
  CHECK(count<decode_action::commit>() == 1);
  CHECK(count<attempt_action::join>() == 1);
  attempts.end(j.id.owner());
  look();
  CHECK(count<decode_action::release>() == 1);
  CHECK(count<decode_action::stop_prefill>() == 0);
  CHECK(attempts.attempts().empty());
}

TEST_CASE_FIXTURE(attempts_world,
                  "slots that prefill may still write are fenced until it has stopped, or is cut off") {
  for (const bool stops : {true, false}) {
    const auto j = job();
    receive(j);
    attempts.cancel(j.id, now);
    look();
    CHECK(count<decode_action::release>() == 1);
    CHECK(count<decode_action::confirm>() == 0);
    REQUIRE(count<decode_action::stop_prefill>() == 1);
    attempts.prefill_stopped(j.id, stops);
    look();
    CHECK(count<decode_action::confirm>() == stops);
    REQUIRE(count<decode_action::fence>() == !stops);
    if (!stops) {
      CHECK(std::get<decode_action::fence>(seen[0]).fences == 4);
      attempts.fenced(j.id.owner());
      look();
      CHECK(count<decode_action::confirm>() == 1);
    }
  }
}

TEST_CASE_FIXTURE(attempts_world,
                  "blocks that are handed over to a request that was cancelled are released, once") {
  const auto j = job(here);
  attempts.take(j, true);
  attempts.cancel(j.id, now);
  look();
  CHECK(count<decode_action::release>() == 0);  // they are the prefill worker's
  attempts.prefill_finished(done(j, 0, {1, 2}), now);
  look();
  CHECK(count<decode_action::release>() == 1);
  CHECK(!attempts.wants(j.id));
}

TEST_CASE_FIXTURE(attempts_world, "a hand-over whose job never comes is kept for a while, then released") {
  const auto j = job(here);
  attempts.prefill_finished(done(j, 0, {1, 2}), now);
  CHECK(attempts.sweep(now + 10s) == std::vector{j.id.owner()});  // its lease goes on
  CHECK(attempts.sweep(now + 31s).empty());
  look();
  CHECK(count<decode_action::release>() == 1);
}

TEST_CASE_FIXTURE(attempts_world, "an attempt that a step reads ends with the step") {
  const auto j = job(here);
  attempts.take(j, true);
  attempts.prefill_finished(done(j, 0, {1, 2}), now);
  attempts.step_begun(j.id.owner());
  attempts.cancel(j.id, now);
  look();
  CHECK(count<decode_action::withdraw>() == 1);
  CHECK(count<decode_action::release>() == 0);
  CHECK(!attempts.step_ended(j.id.owner()));
  look();
  CHECK(count<decode_action::release>() == 1);
}

TEST_CASE_FIXTURE(attempts_world, "a lost gateway's attempts end, those cut off from their prefill fail") {
  const auto cut_off = job();
  receive(cut_off);
  attempts.peer_lost(prefill_node);
  look();
  CHECK(count<attempt_failed>() == 1);
  const auto orphan = job();
  receive(orphan);
  attempts.peer_lost(gateway_node);
  look();
  CHECK(count<attempt_failed>() == 0);
  CHECK(attempts.attempts().empty());
}

TEST_CASE_FIXTURE(attempts_world, "more jobs than there is room for are refused, to be placed elsewhere") {
  receive(job());
  receive(job());
  attempts.take(job(), true);
  look();
  REQUIRE(count<attempt_failed>() == 1);
  CHECK(std::get<attempt_failed>(seen[0]).cause.code == ec::overloaded);
  CHECK(std::get<attempt_failed>(seen[0]).retriable);
}

TEST_CASE_FIXTURE(attempts_world, "what its gateway has lost sight of ends; what it misses is named") {
  const auto kept = job(), lost_sight_of = job(), unknown = job();
  receive(kept);
  receive(lost_sight_of);
  CHECK(attempts.answer_roll({node_id{9}, {}}, now).unknown.empty());  // another gateway's word
  CHECK(attempts.attempts().size() == 2);
  const auto answer = attempts.answer_roll({gateway_node, {kept.id, unknown.id}}, now);
  CHECK(answer.unknown == std::vector{unknown.id});
  CHECK(answer.waiting == std::vector{kept.id});  // for its prompt
  look();
  CHECK(count<decode_action::release>() == 1);
  CHECK(count<decode_action::stop_prefill>() == 1);
  CHECK(attempts.attempts().contains(kept.id.owner()));
  CHECK(!attempts.attempts().contains(lost_sight_of.id.owner()));
}
