// A device that fails takes its worker along and nothing else: what the worker had goes elsewhere, what it
// had computed is used, and nothing of it stays behind.

#include "tests/actors/worker_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

TEST_CASE_FIXTURE(worker_world,
                  "prompts of a worker whose device fails are given back, whatever they wait for") {
  const auto done = job(prompt(9, 1), a, b, 30), first = job(prompt(30, 2), a, a),
             second = job(prompt(9, 3), a, b);
  a.prefill_fails->store(2);  // the first prompt is computed by then
  for (const auto& j : {done, first, second}) send_job(j);
  REQUIRE(until([&] { return over(done) && over(first) && over(second); }));
  CHECK(*a.losses == std::vector<std::string>{"the card is no longer there"});
  for (const auto& j : {first, second}) {
    CHECK(log(j).failed->retriable);
    CHECK(log(j).failed->cause == ec::unavailable);
    CHECK(log(j).failed->cause.detail.find("the card is no longer there") != std::string::npos);
    cancel(j);  // as its gateway does
  }
  CHECK(log(first).failed->lost_device);
  const auto late = job(prompt(9, 4), a, a);
  serve(late);
  CHECK(log(late).failed->retriable);
  CHECK(!log(late).failed->lost_device);  // nothing was lost with it
  cancel(late);
  // What it had computed decodes elsewhere, and so does a prompt that b computes.
  CHECK(log(done).tokens == reference(done));
  const auto other = job(prompt(30, 2), b, a);
  serve(other);
  CHECK(log(other).tokens == reference(other));
  CHECK(ask<worker_load>(a.prefill, status_atom_v)->failure == "the card is no longer there");
  CHECK(ask<worker_load>(a.decode, status_atom_v)->failure.empty());
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world,
                  "answers of a worker whose device fails are given back with the tokens they have") {
  const auto running = job(prompt(9, 1), a, a, 60), coming = job(prompt(30, 2), b, a, 60);
  a.decode_fails->store(7);
  for (const auto& j : {running, coming}) send_job(j);
  REQUIRE(until([&] { return over(running) && over(coming); }));
  CHECK(a.losses->size() == 1);
  CHECK(log(running).tokens.size() == 8);
  CHECK(log(running).failed->lost_device);
  for (const auto& j : {running, coming}) {
    REQUIRE(log(j).failed);
    CHECK(log(j).failed->retriable);
    cancel(j);
  }
  // Its tokens so far are right, and are the prompt of its next attempt.
  auto again = running;
  again.id.attempt = 1;
  again.decode = caf::actor_cast<caf::actor>(b.decode);
  again.placement.decode_node = b.id;
  const auto got = log(running).tokens;
  again.tokens.insert(again.tokens.end(), got.begin(), got.end());
  again.keys = block_keys(again.tokens, block_tokens, again.root);
  serve(again);
  auto whole = got;
  const auto& rest = log(again).tokens;
  whole.insert(whole.end(), rest.begin(), rest.end());
  CHECK(whole == reference(running));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world, "a card that is gone is gone for who does not use it at the moment, too") {
  a.prefill_fails->store(0);
  a.whole_device_fails->store(true);
  const auto asked = job(prompt(9, 1), a, b);
  serve(asked);
  cancel(asked);
  CHECK(log(asked).failed->lost_device);
  CHECK(ask<worker_load>(a.decode, status_atom_v)->failure == "the card is no longer there");
  CHECK(a.losses->size() == 2);
  const auto late = job(prompt(9, 1), b, a);
  serve(late);
  cancel(late);
  CHECK(!log(late).failed->lost_device);
  const auto fine = job(prompt(9, 1), b, b);
  serve(fine);
  CHECK(log(fine).tokens == reference(fine));
  CHECK(until([&] { return all_idle(); }));
}
