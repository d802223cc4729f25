// What the gateway asks of conductor and workers, and what a client hears.

#include "tests/actors/gateway_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

TEST_CASE_FIXTURE(gateway_world, "a placed request is the job of both workers") {
  open();
  auto g = make(sink);
  g.priority = 2;
  g.tbt_slo = 5ms;
  g.cache_salt = "tenant";
  submit({g});
  REQUIRE(place->asked.size() == 1);
  CHECK(place->asked[0].prompt_tokens == 10);
  CHECK(place->asked[0].max_tokens == 50);
  CHECK(place->asked[0].priority == 2);
  CHECK(place->asked[0].tbt_slo_ns == 5'000'000);
  REQUIRE(prefill->jobs.size() == 1);
  REQUIRE(decode->jobs.size() == 1);
  const auto root = root_key(context->root, context->layout, "tenant");
  for (const auto& job : {prefill->jobs[0], decode->jobs[0]}) {
    CHECK(job.id == place->asked[0].id);
    CHECK(job.id.attempt == 0);
    CHECK(job.tokens == g.prompt);
    CHECK(job.prompt_tokens == 10);
    CHECK(job.root == root);
    CHECK(job.keys == block_keys(g.prompt, 4, root));
    CHECK(job.keys == place->asked[0].keys);
    CHECK(job.keys.size() == 2);
    CHECK(job.priority == 2);
    CHECK(job.gateway_node == gateway_node);
    CHECK(job.gateway.address() == under_test.address());
    CHECK(job.prefill.address() == nodes[0].workers[0].handle.address());
    CHECK(job.decode.address() == nodes[1].workers[0].handle.address());
  }
  CHECK(held() == 1);
}

TEST_CASE_FIXTURE(gateway_world, "tokens reach the client in order, and the conductor hears of each stage") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2});
  more(id, 2, {3, 4});
  CHECK(!sink->over());
  more(id, 4, {5}, finish_reason::length);
  CHECK(sink->tokens == ids{1, 2, 3, 4, 5});
  REQUIRE(sink->end);
  CHECK(*sink->end == finish_reason::length);
  CHECK(sink->report->output_tokens == 5);
  CHECK(sink->report->cached_tokens == 4);
  CHECK(place->stages_of(id) == stages{request_stage::first_token, request_stage::finished});
  CHECK(place->events.back().output_tokens == 5);
  CHECK(prefill->cancels.empty());
  CHECK(decode->cancels.empty());
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "an answer of one token ends with the prefill") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 9, finish_reason::stop);
  CHECK(sink->tokens == ids{9});
  CHECK(sink->end == finish_reason::stop);
  CHECK(decode->cancels == std::vector{id});  // it waits for KV that never comes
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a client that has its answer finds it counted") {
  context->meters = std::make_shared<metrics>("m");
  open();
  const auto counted = [&](const std::string& outcome) {
    return context->meters->text().find("mooncaf_requests_total{model_name=\"m\",outcome=\"" + outcome +
                                        "\"} 1") != std::string::npos;
  };
  bool then = false;
  sink->at_end = [&] { then = counted("finished"); };
  submit_one();
  CHECK(!counted("finished"));
  first(placed(), 9, finish_reason::stop);
  CHECK(then);

  sink = std::make_shared<recorder>();
  then = false;
  sink->at_end = [&] { then = counted("failed"); };
  submit_one();
  broke(placed(1), false);
  CHECK(then);
}

TEST_CASE_FIXTURE(gateway_world, "no token is delivered twice") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2, 3});
  more(id, 1, {2, 3});
  more(id, 2, {3, 4});
  CHECK(sink->tokens == ids{1, 2, 3, 4});
}

TEST_CASE_FIXTURE(gateway_world, "tokens that overtake the first one wait for it") {
  open();
  submit_one();
  const auto id = placed();
  more(id, 1, {2});
  more(id, 2, {3});
  CHECK(sink->tokens.empty());
  first(id, 1);
  CHECK(sink->tokens == ids{1, 2, 3});
  more(id, 3, {4}, finish_reason::stop);
  CHECK(sink->tokens == ids{1, 2, 3, 4});
  CHECK(sink->end == finish_reason::stop);
}

TEST_CASE_FIXTURE(gateway_world, "a client that goes away stops both workers and frees its load") {
  open();
  const auto client = submit_one();
  const auto id = placed();
  SUBCASE("before the first token") {}
  SUBCASE("in mid-answer") { first(id, 1); }
  tell(cancel_atom_v, client);
  CHECK(prefill->cancels == std::vector{id});
  CHECK(decode->cancels == std::vector{id});
  REQUIRE(!place->events.empty());
  CHECK(place->events.back().id == id);
  CHECK(place->events.back().stage == request_stage::cancelled);
  CHECK(held() == 0);
  first(id, 1);
  more(id, 1, {2});
  CHECK(sink->tokens.size() <= 1);
  CHECK(!sink->over());
}

TEST_CASE_FIXTURE(gateway_world, "a placement that comes after its client went is given back") {
  open();
  auto client = std::make_shared<client_request>();
  client->arrived = clock_type::now();
  client->generations = {make(sink)};
  caf::anon_send(under_test, submit_atom_v, client);
  caf::anon_send(under_test, cancel_atom_v, client);
  run();
  REQUIRE(place->asked.size() == 1);
  CHECK(prefill->jobs.empty());
  CHECK(place->stages_of(place->asked[0].id) == stages{request_stage::cancelled});
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a conductor that answers too late is told that its placement is not used") {
  open();
  place->silent = true;
  submit_one();
  REQUIRE(place->asked.size() == 1);
  const auto unanswered = place->asked[0].id;
  advance_time(6s);
  CHECK(place->stages_of(unanswered) == stages{request_stage::cancelled});
  place->silent = false;
  CHECK(placed().attempt == 1);
}

TEST_CASE_FIXTURE(gateway_world, "a stop string ends the answer and stops both workers") {
  open();
  sink->wanted = 2;
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2, 3});
  CHECK(sink->tokens == ids{1, 2});
  CHECK(sink->end == finish_reason::stop);
  CHECK(prefill->cancels == std::vector{id});
  CHECK(decode->cancels == std::vector{id});
  CHECK(place->stages_of(id) == stages{request_stage::first_token, request_stage::finished});
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a rejection tells the client when to come back, in whole seconds") {
  place->answer = [](const schedule_job& job) {
    placement_msg p;
    p.id = job.id;
    p.rejection = {ec::slo_unreachable, "too much to do"};
    p.retry_after_ns = 1'200'000'000;
    return p;
  };
  open();
  submit_one();
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::slo_unreachable);
  CHECK(sink->retry_after == 2s);
  CHECK(place->events.empty());  // nothing was charged
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a request waits for a conductor to appear") {
  open(false);
  submit_one();
  advance_time(100ms);
  CHECK(!sink->over());
  CHECK(held() == 1);
  follow();
  placed();
}

TEST_CASE_FIXTURE(gateway_world, "without a conductor a request is refused as unavailable in the end") {
  open(false);
  submit_one(20s);
  REQUIRE(ticks_until([&] { return sink->over(); }));
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::unavailable);
  CHECK(sink->retry_after == 2s);
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "without an instance of a role a request waits, and is refused in the end") {
  place->answer = [](const schedule_job& job) {
    placement_msg p;
    p.id = job.id;
    p.rejection = {ec::unavailable, "no decode instance"};
    return p;
  };
  open();
  submit_one();
  advance_time(10s);
  CHECK(!sink->over());
  REQUIRE(ticks_until([&] { return sink->over(); }));
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::unavailable);
  CHECK(sink->cause->detail.find("no decode instance") != std::string::npos);
}

TEST_CASE_FIXTURE(gateway_world,
                  "answers to the same prompt start when the first of them has its first token") {
  open();
  const auto second = std::make_shared<recorder>(), third = std::make_shared<recorder>(),
             other = std::make_shared<recorder>();
  submit({make(sink), make(second), make(other, 5), make(third)});
  CHECK(prefill->jobs.size() == 2);  // one per prompt
  CHECK(prefill->jobs[0].tokens.size() == 10);
  CHECK(prefill->jobs[1].tokens.size() == 5);
  first(prefill->jobs[0].id, 1);
  REQUIRE(prefill->jobs.size() == 4);
  CHECK(prefill->jobs[3].tokens.size() == 10);
  for (std::size_t i = 0; i < 4; ++i) {
    if (i > 0) first(prefill->jobs[i].id, static_cast<std::int32_t>(i + 1));
    more(prefill->jobs[i].id, 1, {7}, finish_reason::stop);
  }
  for (const auto& s : {sink, second, third, other}) {
    CHECK(s->tokens.size() == 2);
    CHECK(s->end == finish_reason::stop);
  }
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world,
                  "log-probabilities of the prompt are asked for until the first token, and told once") {
  open();
  auto wanted = make(sink, 3);
  wanted.sampling.logprobs = 0;
  wanted.sampling.prompt_logprobs = 0;
  submit({wanted});
  CHECK(place->asked.at(0).keys.empty());  // nothing cached is of use
  broke(placed(), true);
  const auto id = placed(1);
  CHECK(prefill->jobs[1].sampling.prompt_logprobs == 0);
  first_token m;
  m.id = id;
  m.token = token(1);
  m.prompt = {token(101), token(102)};
  tell(first_atom_v, m);
  CHECK(sink->prompted == ids{100, 101, 102});
  CHECK(sink->scored == ids{101, 102});
  CHECK(sink->tokens == ids{1});
  broke(id, true);
  placed(2);
  CHECK(prefill->jobs[2].sampling.prompt_logprobs == -1);
}

TEST_CASE_FIXTURE(gateway_world, "answers that wait for another one share its failure") {
  open();
  const auto second = std::make_shared<recorder>();
  submit({make(sink), make(second)});
  broke(placed(), false);
  CHECK(sink->cause);
  CHECK(second->cause);
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world,
                  "requests beyond the limit are refused as overload and leave nothing behind") {
  context->opts.gateway.max_requests = 2;
  open();
  const auto first_in = std::make_shared<recorder>(), second_in = std::make_shared<recorder>();
  submit({make(first_in)});
  submit({make(second_in)});
  submit({make(sink)});
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::overloaded);
  CHECK(sink->retry_after >= 1s);
  CHECK(held() == 2);
  CHECK(prefill->jobs.size() == 2);
  CHECK(!first_in->over());
}

TEST_CASE_FIXTURE(gateway_world, "a request that takes longer than its limit fails, and its workers stop") {
  context->opts.gateway.request_timeout = 1min;
  open();
  submit_one(2min);
  const auto id = decode->jobs.at(0).id;
  advance_time(100ms);
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::timed_out);
  CHECK(prefill->cancels == std::vector{id});
  CHECK(decode->cancels == std::vector{id});
  CHECK(place->stages_of(id) == stages{failed_stage});
}

TEST_CASE_FIXTURE(gateway_world, "a gateway that stops tells its clients") {
  open();
  submit_one();
  stop(under_test);
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::unavailable);
}

TEST_CASE_FIXTURE(gateway_world,
                  "a request that decode knows nothing of is placed again, without a word to its client") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  decode->forgetful = true;
  REQUIRE(ticks_until([&] { return decode->jobs.size() > 1; }));
  decode->forgetful = false;
  const auto next = placed(1);
  CHECK(next.attempt == id.attempt + 1);
  more(next, 1, {2, 3}, finish_reason::stop);
  CHECK(sink->tokens == ids{1, 2, 3});
  CHECK(sink->end == finish_reason::stop);
  CHECK(!decode->rolls.empty());
}
