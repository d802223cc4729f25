// Workers and messengers when the node at the other end cannot be reached any more, and when it is back.

#include "tests/actors/worker_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

executor_actor::behavior_type nothing(executor_actor::pointer) {
  return {[](run_atom, const task_ptr& task) { return task; }};
}

struct loss_world : worker_world {
  /// Its prefill worker cannot be reached: nothing comes from it, no question to it is answered.
  generate_job with_silent_prefill(std::uint32_t seed = 1) {
    auto j = job(prompt(10, seed), a, b);
    const auto dead = sys.spawn(nothing);
    stop(dead);
    j.prefill = caf::actor_cast<caf::actor>(dead);
    return j;
  }
};

}  // namespace

TEST_CASE_FIXTURE(loss_world,
                  "decode gives up at once what a lost node was to compute, and keeps what it has") {
  const auto running = job(prompt(10, 2), a, b, 60);
  send_job(running);
  REQUIRE(until([&] { return !log(running).positions.empty(); }));
  const auto waiting = with_silent_prefill();
  caf::anon_send(b.decode, job_atom_v, waiting);
  run();
  CHECK(!over(waiting));
  part(b, a);
  REQUIRE(until([&] { return over(waiting); }));
  REQUIRE(log(waiting).failed);
  CHECK(log(waiting).failed->retriable);
  CHECK(log(waiting).failed->cause.code == ec::peer_lost);
  REQUIRE(until([&] { return over(running); }));
  CHECK(log(running).tokens == reference(running));
  // Its slots were exposed; the fence at the loss makes them free, without any time passing.
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(loss_world, "decode opens no slot to a node that it is not connected with") {
  part(b, a);
  run();
  const auto j = with_silent_prefill();
  caf::anon_send(b.decode, job_atom_v, j);
  REQUIRE(until([&] { return over(j); }));
  REQUIRE(log(j).failed);
  CHECK(log(j).failed->retriable);
  CHECK(log(j).failed->cause.code == ec::unavailable);
  CHECK(until([&] { return idle(b); }));
}

TEST_CASE_FIXTURE(loss_world, "prefill gives up at once what was to go to a lost node") {
  const auto j = job(prompt(30), a, b);
  caf::anon_send(a.prefill, job_atom_v, j);  // decode's slots never come
  REQUIRE(until([&] { return log(j).first.has_value(); }));
  CHECK(!over(j));
  part(a, b);
  REQUIRE(until([&] { return over(j); }));
  REQUIRE(log(j).failed);
  CHECK(log(j).failed->retriable);
  CHECK(log(j).failed->cause.code == ec::peer_lost);
  CHECK(until([&] { return idle(a); }));
}

TEST_CASE_FIXTURE(loss_world, "a fence that comes late does not shut out a peer that is back") {
  const auto j = with_silent_prefill();
  caf::anon_send(b.decode, job_atom_v, j);
  run();
  CHECK(status(b).slots_reserved > 0);
  // The messengers hear of the loss and of the return before the worker hears of the loss.
  for (const auto& [one, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    caf::anon_send(one->messenger, peer_down_atom_v, other->id);
    introduce(*one, *other);
  }
  run();
  caf::anon_send(b.decode, cancel_atom_v, j.id);
  CHECK(until([&] { return idle(b); }));
  const auto next = job(prompt(15, 3), a, b);
  serve(next);
  CHECK(!log(next).failed);
  CHECK(log(next).tokens == reference(next));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(loss_world, "a peer that was fenced while it was there is named until it is greeted anew") {
  const auto j = with_silent_prefill();
  caf::anon_send(b.decode, job_atom_v, j);
  run();
  caf::anon_send(b.decode, cancel_atom_v, j.id);
  CHECK(until([&] { return idle(b); }));
  const auto fenced = [&] { return ask<transfer_report>(b.messenger, status_atom_v)->fenced; };
  CHECK(fenced() == std::vector{a.id});
  for (const auto& [one, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    part(*one, *other);
    introduce(*one, *other);
  }
  run();
  CHECK(fenced().empty());
  const auto next = job(prompt(15, 3), a, b);
  serve(next);
  CHECK(log(next).tokens == reference(next));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(loss_world, "a prefix that was to be fetched from a lost node is computed, at once") {
  auto j = job(prompt(20), b, b);
  j.placement.source = a.id;
  j.placement.source_blocks = 4;
  stop(a.shard);
  serve(j);
  CHECK(!log(j).failed);
  CHECK(log(j).tokens == reference(j));
  CHECK(until([&] { return idle(b); }));
}
