// The gateway's mind without a mailbox; tests/actors/gateway_test.cpp has the same through messages. Here:
// what the campaign (tests/campaign) found, each in its smallest form.

#include "runtime/request/gateway_core.hpp"

#include <doctest/doctest.h>

#include <bit>

#include "tests/runtime/request/nodes.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

constexpr worker_id prefill{20}, decode{30};

struct quiet final : gateway_observer {
  void first_token(duration, std::uint32_t, std::uint32_t) override {}
  void token(std::optional<duration>) override {}
  void prefill_wasted(std::uint32_t) override {}
  void attempt_failed(request_id, const error&) override {}
  void over(std::string_view, const std::string&, duration) override {}
  void traced(const request_trace& trace) override { traces.push_back(trace); }
  void waiting(std::size_t) override {}

  std::vector<request_trace> traces;
};

struct sink final : token_sink {
  int tokens = 0, ends = 0;
  std::optional<error> cause;
  std::vector<float> values;
  void prompt(std::span<const std::int32_t>, std::span<const sampled_token>) override {}
  void pooled(std::span<const float> v) override { values.assign(v.begin(), v.end()); }
  bool token(const sampled_token&) override { return ++tokens > 0; }
  void finished(finish_reason, const generation_report&) override { ++ends; }
  void failed(const error& e, std::chrono::seconds) override {
    ++ends;
    cause = e;
  }
};

struct gateway_world {
  gateway_world() {
    core.set_conductor(true, 0, now);
    core.peer_up(prefill_node, {prefill}, now);
    core.peer_up(decode_node, {decode}, now);
  }
  client_request_ptr submit(std::vector<std::shared_ptr<sink>> sinks) {
    auto client = std::make_shared<client_request>();
    client->arrived = now;
    for (auto& s : sinks) {
      generation g;
      g.prompt = {1, 2, 3, 4, 5};
      g.sink = std::move(s);
      client->generations.push_back(std::move(g));
    }
    core.submit(client, now);
    return client;
  }
  /// Of the actions so far, those of one kind.
  template <class T>
  std::vector<T> take() {
    std::vector<T> out;
    for (auto& a : core.take_actions()) {
      if (auto* wanted = std::get_if<T>(&a)) out.push_back(std::move(*wanted));
    }
    return out;
  }
  attempt_id place() {
    const auto asked = take<schedule_job>();
    REQUIRE(asked.size() == 1);
    placement_msg where;
    where.prefill = prefill;
    where.decode = decode;
    where.prefill_node = prefill_node;
    where.decode_node = decode_node;
    core.answered(asked[0].id, where, now);
    REQUIRE(take<work_order>().size() == 1);
    return asked[0].id;
  }

  quiet observer;
  time_point now = time_point{} + 1h;
  gateway_core core{here,
                    hash_text128("model"),
                    {.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .block_tokens = 4},
                    {.max_requests = 10, .request_timeout = 60s, .ttft_slo = 30s, .tbt_slo = 1s},
                    observer};
};

}  // namespace

TEST_CASE_FIXTURE(gateway_world,
                  "a lost worker is told to stop, too: the job may have gone over a renewed link") {
  submit({std::make_shared<sink>()});
  const auto id = place();
  core.peer_down(decode_node, now);
  std::vector<worker_id> told;
  for (const auto& stop : take<stop_order>()) {
    CHECK(stop.id == id);
    told.push_back(stop.worker);
  }
  CHECK(told == std::vector{decode, prefill});
}

TEST_CASE_FIXTURE(gateway_world, "a trace has every attempt with its times, and why the first failed") {
  const auto begin = now;
  auto s = std::make_shared<sink>();
  submit({s});
  now += 10ms;
  const auto id = place();
  now += 20ms;
  core.peer_down(decode_node, now);
  core.peer_up(decode_node, {decode}, now);
  now += 1s;
  core.tick(now);
  const auto second = place();
  CHECK(second.attempt == id.attempt + 1);
  now += 40ms;
  first_token message;
  message.id = second;
  message.stats.compute_ns = 5;
  core.first(message, now);
  now += 80ms;
  token_run run{second, 1, {token_msg{}, token_msg{}}, finish_reason::length};
  core.tokens(run, now);
  REQUIRE(observer.traces.size() == 1);
  const auto& trace = observer.traces[0];
  CHECK(trace.id == id.request);
  CHECK(trace.arrived == begin);
  CHECK(trace.ended == now);
  CHECK(trace.outcome == "finished");
  CHECK(trace.finish == finish_reason::length);
  CHECK(trace.prompt_tokens == 5);
  CHECK(trace.output_tokens == 3);
  CHECK(trace.ttft == 1070ms);
  REQUIRE(trace.attempts.size() == 2);
  const auto& lost = trace.attempts[0];
  CHECK(lost.asked == begin);
  CHECK(lost.placed == begin + 10ms);
  CHECK(!lost.first);
  CHECK(lost.over == begin + 30ms);
  CHECK(lost.failure.find("is gone") != std::string::npos);
  const auto& made = trace.attempts[1];
  CHECK(made.asked == begin + 1030ms);
  CHECK(made.placed == begin + 1030ms);
  CHECK(made.where.decode == decode);
  CHECK(made.first == begin + 1070ms);
  CHECK(made.stats.compute_ns == 5);
  CHECK(!made.over);
}

TEST_CASE_FIXTURE(gateway_world, "a request that is refused has a trace that says why") {
  submit({std::make_shared<sink>()});
  placement_msg where;
  where.rejection = {ec::overloaded, "the queue is full"};
  core.answered(take<schedule_job>().at(0).id, where, now);
  REQUIRE(observer.traces.size() == 1);
  CHECK(observer.traces[0].outcome == "rejected");
  CHECK(observer.traces[0].failure.find("the queue is full") != std::string::npos);
  REQUIRE(observer.traces[0].attempts.size() == 1);
  CHECK(!observer.traces[0].attempts[0].placed);
}

TEST_CASE_FIXTURE(gateway_world, "the conductor is told whose a request is") {
  const auto client = std::make_shared<client_request>();
  client->arrived = now;
  generation g;
  g.prompt = {1, 2, 3, 4, 5};
  g.tenant = 77;
  g.sink = std::make_shared<sink>();
  client->generations.push_back(std::move(g));
  core.submit(client, now);
  const auto asked = take<schedule_job>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].tenant == 77);
}

TEST_CASE_FIXTURE(gateway_world, "an answer that ends with its first token is no work for decode any more") {
  auto s = std::make_shared<sink>();
  submit({s});
  first_token message;
  message.id = place();
  message.finish = finish_reason::length;
  core.first(message, now);
  CHECK(s->ends == 1);
  const auto stops = take<stop_order>();
  REQUIRE(stops.size() == 1);
  CHECK(stops[0].worker == decode);
  CHECK(core.size() == 0);
}

TEST_CASE_FIXTURE(gateway_world,
                  "a gateway that stops tells those who wait for another answer's prompt, too") {
  auto leader = std::make_shared<sink>(), follower = std::make_shared<sink>();
  submit({leader, follower});
  core.close();
  CHECK(leader->ends == 1);
  CHECK(follower->ends == 1);
  CHECK(follower->cause->code == ec::unavailable);
}

TEST_CASE_FIXTURE(gateway_world,
                  "an answer of the conductor that comes after its time is given back, and no job") {
  submit({std::make_shared<sink>()});
  const auto asked = take<schedule_job>();
  core.unanswered(asked.at(0).id, {ec::timed_out, "too late"}, now);
  const auto told = take<request_event>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].stage == request_stage::cancelled);
  core.answered(asked[0].id, {}, now);
  CHECK(core.take_actions().empty());
}

TEST_CASE("a gateway that has never seen a worker does not let clients wait for one") {
  quiet observer;
  gateway_core core{here,
                    hash_text128("model"),
                    {.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .block_tokens = 4},
                    {.max_requests = 10, .request_timeout = 60s, .ttft_slo = 30s, .tbt_slo = 1s},
                    observer};
  auto now = time_point{} + 1h;
  core.set_conductor(true, 0, now);
  const auto s = std::make_shared<sink>();
  auto client = std::make_shared<client_request>();
  client->arrived = now;
  generation g;
  g.prompt = {1};
  g.sink = s;
  client->generations.push_back(g);
  core.submit(client, now);
  placement_msg nobody;
  nobody.rejection = {ec::unavailable, "no live prefill instance"};
  for (int i = 0; i < 60 && s->ends == 0; ++i, now += 50ms) {
    for (auto& a : core.take_actions())
      if (const auto* asked = std::get_if<schedule_job>(&a)) core.answered(asked->id, nobody, now);
    core.tick(now);
  }
  REQUIRE(s->ends == 1);
  CHECK(s->cause->code == ec::unavailable);
  CHECK(s->cause->detail.find("no live prefill instance") != std::string::npos);
}

TEST_CASE_FIXTURE(gateway_world,
                  "hidden states come with the first token; for their mean no cache is asked for") {
  for (const auto pooling : {pooling_kind::mean, pooling_kind::last}) {
    const auto s = std::make_shared<sink>();
    auto client = std::make_shared<client_request>();
    client->arrived = now;
    generation g;
    g.prompt = {1, 2, 3, 4, 5};
    g.sampling.pooling = pooling;
    g.sampling.max_tokens = 1;
    g.sink = s;
    client->generations.push_back(g);
    core.submit(client, now);
    const auto asked = take<schedule_job>();
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].keys.empty() == (pooling == pooling_kind::mean));
    placement_msg where;
    where.prefill = prefill;
    where.decode = decode;
    where.prefill_node = prefill_node;
    where.decode_node = decode_node;
    core.answered(asked[0].id, where, now);
    const auto orders = take<work_order>();
    REQUIRE(orders.size() == 1);
    CHECK(orders[0].sampling.pooling == pooling);
    first_token message;
    message.id = asked[0].id;
    message.finish = finish_reason::length;
    message.pooled = {std::bit_cast<std::uint32_t>(0.5f), std::bit_cast<std::uint32_t>(-2.0f)};
    core.first(message, now);
    CHECK(s->values == std::vector{0.5f, -2.0f});
    CHECK(s->ends == 1);
  }
}

TEST_CASE_FIXTURE(gateway_world, "an attempt that a worker does not know is placed again, within seconds") {
  auto s = std::make_shared<sink>();
  submit({s});
  const auto id = place();
  core.tick(now);
  const auto called = take<worker_roll>();
  REQUIRE(called.size() == 2);
  for (const auto& roll : called) CHECK(roll.call.live == std::vector{id});
  const auto again = [&](worker_id who) {
    core.rolled(who, {{id}, {}}, now);
    CHECK(take<stop_order>().empty());  // once is none: its end may be on the way
    now += 3s;
    core.tick(now);
    core.rolled(who, {{id}, {}}, now);
    return !take<stop_order>().empty();
  };
  SUBCASE("by decode") { CHECK(again(decode)); }
  SUBCASE("by prefill, before its first token") { CHECK(again(prefill)); }
  SUBCASE("not by prefill, which has done its part") {
    first_token message;
    message.id = id;
    core.first(message, now);
    now += 10s;
    core.tick(now);
    CHECK(!again(prefill));
    CHECK(again(decode));
  }
  SUBCASE("not if a word of it came after the question: its end may follow") {
    token_run run;
    run.id = id;
    run.position = 1;
    core.tokens(run, now);
    core.rolled(decode, {{id}, {}}, now);
    now += 10s;
    core.tick(now);
    CHECK(again(decode));
  }
  now += 1s;
  core.tick(now);
  const auto asked = take<schedule_job>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].id.attempt == id.attempt + 1);
  CHECK(s->ends == 0);
}

TEST_CASE_FIXTURE(gateway_world,
                  "an attempt whose workers wait for each other is placed again, within seconds") {
  auto s = std::make_shared<sink>();
  submit({s});
  const auto id = place();
  first_token message;
  message.id = id;
  core.first(message, now);
  const roll_answer gone{{id}, {}}, waits{{}, {id}}, works{};
  const auto call = [&](const roll_answer& of_prefill, const roll_answer& of_decode) {
    now += 3s;
    core.tick(now);
    core.rolled(decode, of_decode, now);
    core.rolled(prefill, of_prefill, now);
    return !take<stop_order>().empty();
  };
  // Once is none: what one said to the other may be on the way.
  SUBCASE("prefill has ended it, and decode waits for the prompt") {
    CHECK(!call(gone, waits));
    CHECK(call(gone, waits));
  }
  SUBCASE("prefill waits for where to write, decode for what is written") {
    CHECK(!call(waits, waits));
    CHECK(call(waits, waits));
  }
  SUBCASE("not while one of them is at work, or was when they were asked before") {
    for (int i = 0; i < 3; ++i) CHECK(!call(works, waits));
    for (int i = 0; i < 3; ++i) CHECK(!call(gone, works));
    CHECK(!call(gone, waits));
    CHECK(!call(works, waits));
    CHECK(!call(gone, waits));
    CHECK(call(gone, waits));
  }
  SUBCASE("not if a word of it came meanwhile") {
    CHECK(!call(gone, waits));
    token_run run;
    run.id = id;
    run.position = 1;
    core.tokens(run, now);
    CHECK(!call(gone, waits));
    CHECK(call(gone, waits));
  }
  now += 1s;
  core.tick(now);
  const auto asked = take<schedule_job>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].id.attempt == id.attempt + 1);
  CHECK(s->ends == 0);
}

TEST_CASE_FIXTURE(gateway_world, "who comes back is told at once what is expected of it: nothing") {
  core.take_actions();
  core.peer_down(decode_node, now);
  core.peer_up(decode_node, {decode}, now);
  const auto called = take<worker_roll>();
  REQUIRE(called.size() == 1);
  CHECK(called[0].worker == decode);
  CHECK(called[0].call.gateway == here);
  CHECK(called[0].call.live.empty());
}

TEST_CASE_FIXTURE(gateway_world,
                  "an answer that has begun and that nobody can go on with ends within half a minute") {
  // Found by the campaign: it hung until the request's own limit.
  auto s = std::make_shared<sink>();
  submit({s});
  first_token message;
  message.id = place();
  core.first(message, now);
  core.peer_down(decode_node, now);
  const auto lost = now;
  bool conductor_is_there = false;
  SUBCASE("there is no instance to go to") { conductor_is_there = true; }
  SUBCASE("there is no conductor") { core.set_conductor(false, 0, now); }
  while (s->ends == 0 && now < lost + 50s) {
    now += gateway_tick;
    core.tick(now);
    for (const auto& job : take<schedule_job>()) {
      REQUIRE(conductor_is_there);
      placement_msg nowhere;
      nowhere.id = job.id;
      nowhere.rejection = {ec::unavailable, "no decode instance"};
      core.answered(job.id, nowhere, now);
    }
  }
  CHECK(s->ends == 1);
  REQUIRE(s->cause);
  CHECK(s->cause->code == ec::unavailable);
  CHECK(now - lost > 15s);
  CHECK(now - lost < 35s);
}

TEST_CASE_FIXTURE(
    gateway_world,
    "a question under way to a conductor that leads anew is given back before it is asked again") {
  submit({std::make_shared<sink>()});
  const auto first = take<schedule_job>().at(0);
  core.set_conductor(true, 7, now);  // perhaps the same one, which places the first question in its new term
  const auto actions = core.take_actions();
  REQUIRE(actions.size() == 2);
  const auto* back = std::get_if<request_event>(&actions[0]);
  REQUIRE(back != nullptr);
  CHECK(back->id == first.id);
  CHECK(back->stage == request_stage::cancelled);
  CHECK(std::holds_alternative<schedule_job>(actions[1]));
}

TEST_CASE_FIXTURE(
    gateway_world,
    "when another conductor leads, what waits is asked for again at once, and the old answer is void") {
  submit({std::make_shared<sink>()});
  const auto first = take<schedule_job>().at(0);
  core.set_conductor(true, 7, now);
  const auto again = take<schedule_job>().at(0);
  CHECK(again.id.request == first.id.request);
  CHECK(again.id.attempt == first.id.attempt + 1);
  placement_msg where;
  where.prefill = prefill;
  where.decode = decode;
  where.prefill_node = prefill_node;
  where.decode_node = decode_node;
  where.term = 6;
  core.answered(first.id, where, now);
  CHECK(take<work_order>().empty());
  SUBCASE("nor does a placement of an earlier term count for the new question") {
    core.answered(again.id, where, now);
    CHECK(take<work_order>().empty());
    core.tick(now += 1s);
    CHECK(take<schedule_job>().size() == 1);
  }
  SUBCASE("the new leader's does") {
    where.term = 7;
    core.answered(again.id, where, now);
    CHECK(take<work_order>().size() == 1);
  }
  SUBCASE("what has a place stays where it is") {
    where.term = 7;
    core.answered(again.id, where, now);
    take<work_order>();
    core.set_conductor(true, 8, now);
    CHECK(take<schedule_job>().empty());
  }
}
