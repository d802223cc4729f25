// Prefill as a decode worker and a gateway see it: what it reuses, what it hands over, and what it leaves
// behind.

#include "tests/actors/worker_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

TEST_CASE_FIXTURE(worker_world, "a prompt seen before is reused but for its last block") {
  const auto first = job(prompt(21), a, a);
  serve(first);
  CHECK(log(first).first->stats.cached_tokens == 0);
  CHECK(log(first).first->stats.computed_tokens == 21);
  const auto second = job(prompt(21), a, a);
  serve(second);
  CHECK(log(second).first->stats.cached_tokens == 20);
  CHECK(log(second).first->stats.dram_tokens == 20);
  CHECK(log(second).first->stats.computed_tokens == 1);
  CHECK(log(second).tokens == log(first).tokens);
  // A prompt of whole blocks still needs the logits of its last token.
  const auto third = job(prompt(20), a, a);
  serve(third);
  CHECK(log(third).first->stats.cached_tokens == 16);
  CHECK(log(third).tokens == reference(third));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world,
                  "prompts that share a step report their parts of its time, not all of it each") {
  const auto first = job(prompt(3, 1), a, a);
  const auto small = job(prompt(4, 2), a, a), large = job(prompt(8, 3), a, a);
  // The first has the device to itself when it comes; the others come meanwhile and fill the next step.
  for (const auto& j : {first, small, large}) send_job(j);
  REQUIRE(until([&] { return over(first) && over(small) && over(large); }));
  const auto parts = std::pair{log(small).first->stats.compute_ns, log(large).first->stats.compute_ns};
  CHECK(parts.first > 0);
  CHECK(std::abs(2 * parts.first - parts.second) <= 2);  // by tokens, but for rounding
}

TEST_CASE_FIXTURE(worker_world, "an answer that decode made is a prefix for the next turn") {
  const auto turn = job(prompt(9), a, a, 12);
  serve(turn);
  auto longer = turn.tokens;
  longer.insert(longer.end(), log(turn).tokens.begin(), log(turn).tokens.end());
  const auto next = job(longer, a, a, 6);
  serve(next);
  // 21 tokens, of which the last answered one was never fed back: five full blocks.
  CHECK(log(next).first->stats.cached_tokens == 20);
  CHECK(log(next).tokens == reference(next));
}

TEST_CASE_FIXTURE(worker_world,
                  "a prefix that another node holds is fetched, and decode's slots may be told meanwhile") {
  const auto before = job(prompt(30), b, b);
  serve(before);
  REQUIRE(until([&] { return all_idle(); }));
  auto j = job(prompt(30), a, b);
  SUBCASE("decoded where the prefix is") {}
  SUBCASE("decoded elsewhere") {
    j.placement.decode_node = a.id;
    j.decode = caf::actor_cast<caf::actor>(a.decode);
  }
  j.placement.source = b.id;
  j.placement.source_blocks = 7;
  send_job(j);
  run();  // everything up to the fetch, whose end is a report that nobody has taken yet
  CHECK(!log(j).first);
  REQUIRE(until([&] { return over(j); }));
  REQUIRE(!log(j).failed);
  CHECK(log(j).first->stats.remote_tokens == 28);
  CHECK(log(j).first->stats.computed_tokens == 2);
  CHECK(log(j).tokens == log(before).tokens);
  CHECK(until([&] { return all_idle(); }));
  CHECK(status(a).hits_remote == 7);
}

TEST_CASE_FIXTURE(worker_world, "a prefix that cannot be fetched after all is computed") {
  auto j = job(prompt(30), a, a);
  j.placement.source_blocks = 7;
  SUBCASE("the holder has lost it") { j.placement.source = b.id; }
  SUBCASE("the holder is nobody we know") { j.placement.source = node_id{999}; }
  serve(j);
  REQUIRE(!log(j).failed);
  CHECK(log(j).first->stats.computed_tokens == 30);
  CHECK(log(j).tokens == reference(j));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE("a prompt that does not fit is given back, so that another node may try") {
  worker_world w{4};
  for (auto* decode : {&w.a, &w.b}) {
    const auto j = w.job(worker_world::prompt(30), w.a, *decode);
    w.serve(j);
    REQUIRE(w.log(j).failed);
    CHECK(w.log(j).failed->cause.code == ec::out_of_space);
    CHECK(w.log(j).failed->retriable);
    CHECK(w.log(j).tokens.empty());
    w.cancel(j);  // as the gateway does
    CHECK(w.until([&] { return w.all_idle(); }));
  }
}

TEST_CASE_FIXTURE(worker_world, "an answer of one token needs no decode, and leaves nothing there") {
  for (auto* decode : {&a, &b}) {
    const auto j = job(prompt(11), a, *decode, 1);
    serve(j);
    CHECK(log(j).tokens == reference(j));
    CHECK(log(j).positions.empty());
    CHECK(until([&] { return all_idle(); }));
  }
}

TEST_CASE_FIXTURE(worker_world, "a cancel that overtakes its job keeps it from starting") {
  for (auto* decode : {&a, &b}) {
    const auto j = job(prompt(11), a, *decode);
    cancel(j);
    run();
    send_job(j);
    CHECK(until([&] { return all_idle(); }));
    CHECK(log(j).tokens.empty());
    CHECK(!log(j).failed);
  }
  CHECK(status(a).slots_committed == 0);
}

TEST_CASE_FIXTURE(worker_world, "the requests of a lost gateway are dropped") {
  for (auto* decode : {&a, &b}) {
    const auto j = job(prompt(40), a, *decode, 100);
    send_job(j);
    for (int i = 0; i < 20; ++i) sched.try_run_once();
    for (auto* n : {&a, &b}) {
      caf::anon_send(n->prefill, peer_down_atom_v, node_id{300});
      caf::anon_send(n->decode, peer_down_atom_v, node_id{300});
    }
    run();
    advance_time(std::chrono::seconds(1));
    CHECK(until([&] { return all_idle(); }));
    CHECK(!over(j));
  }
}

TEST_CASE_FIXTURE(worker_world,
                  "what its gateway has lost sight of ends, at both workers, and leaves nothing") {
  const auto j = job(prompt(30), a, b, 200);
  caf::anon_send(a.prefill, job_atom_v, j);
  REQUIRE(until([&] { return log(j).first.has_value(); }));
  caf::anon_send(b.decode, job_atom_v, j);
  // Its KV is under way for as long as no report of the data plane is taken, which asking does not do.
  for (const auto& live : {std::vector{j.id}, {}}) {
    const roll_call call{j.gateway_node, live};
    CHECK(ask<roll_answer>(b.decode, roll_atom_v, call).value().unknown.empty());
    CHECK(ask<roll_answer>(a.prefill, roll_atom_v, call).has_value());
    CHECK((live.empty() || !idle(b)));
  }
  CHECK(until([&] { return all_idle(); }));
  CHECK(!over(j));
  CHECK(ask<roll_answer>(b.decode, roll_atom_v, roll_call{j.gateway_node, {j.id}}).value().unknown ==
        std::vector{j.id});
}

TEST_CASE_FIXTURE(worker_world,
                  "workers of a process that leaves give their requests back, and hold nothing") {
  const auto j = job(prompt(30), a, b, 200);
  caf::anon_send(a.prefill, job_atom_v, j);
  caf::anon_send(b.decode, job_atom_v, j);
  REQUIRE(until([&] { return log(j).first.has_value(); }));
  caf::anon_send(b.decode, leave_atom_v);
  caf::anon_send(a.prefill, leave_atom_v);
  REQUIRE(until([&] { return over(j); }));
  if (!log(j).failed) {  // where the answer was at its end before its worker was told
    CHECK(log(j).tokens.size() == 200);
    CHECK(until([&] { return all_idle(); }));
    return;
  }
  CHECK(log(j).failed->retriable);
  CHECK_FALSE(log(j).failed->lost_device);
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world, "workers say when they wait for each other") {
  const auto j = job(prompt(30), a, b, 200);
  const roll_call call{j.gateway_node, {j.id}};
  const auto waits = [&](const auto& worker) {
    const auto answer = ask<roll_answer>(worker, roll_atom_v, call).value();
    CHECK(answer.unknown.empty());
    return answer.waiting == std::vector{j.id};
  };
  SUBCASE("prefill, for slots to write, when it has computed all") {
    caf::anon_send(a.prefill, job_atom_v, j);
    sched.run_once();
    CHECK(!waits(a.prefill));
    REQUIRE(until([&] { return log(j).first.has_value(); }));
    CHECK(waits(a.prefill));
    caf::anon_send(b.decode, job_atom_v, j);
  }
  SUBCASE("decode, for what is written there") {
    caf::anon_send(b.decode, job_atom_v, j);
    run();
    CHECK(waits(b.decode));
    caf::anon_send(a.prefill, job_atom_v, j);
  }
  REQUIRE(until([&] { return over(j); }));
  CHECK(log(j).tokens == reference(j));
  CHECK(until([&] { return all_idle(); }));
}
