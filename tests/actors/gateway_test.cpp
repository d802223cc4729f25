// The gateway between a conductor and workers that do exactly what a test tells them, in virtual time.

#include "actors/gateway.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "runtime/sched/block_hash.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id gateway_node{7}, prefill_node{10}, decode_node{20};
constexpr worker_id prefill_id{11}, decode_id{21};

/// What came to a fake, in order.
struct worker_log {
  std::vector<generate_job> jobs;
  std::vector<attempt_id> cancels;
};

struct conductor_log {
  std::vector<schedule_job> asked;
  std::vector<request_event> events;
  std::function<placement_msg(const schedule_job&)> answer;
  bool silent = false;  ///< never answers

  std::vector<request_stage> stages_of(const attempt_id& id) const {
    std::vector<request_stage> out;
    for (const auto& e : events) {
      if (e.id == id) out.push_back(e.stage);
    }
    return out;
  }
};

prefill_worker_actor::behavior_type fake_prefill(prefill_worker_actor::pointer,
                                                 std::shared_ptr<worker_log> log) {
  return {
      [=](job_atom, const generate_job& job) { log->jobs.push_back(job); },
      [](target_atom, const kv_target&) { FAIL_CHECK("a gateway has no slots"); },
      [=](cancel_atom, const attempt_id& id) { log->cancels.push_back(id); },
      [](peer_down_atom, node_id) { FAIL_CHECK("peers are the node's business"); },
      [](status_atom) { return worker_load{}; },
      [](sent_atom, const attempt_id&, bool) { FAIL_CHECK("internal"); },
      [](tick_atom) { FAIL_CHECK("internal"); },
  };
}

decode_worker_actor::behavior_type fake_decode(decode_worker_actor::pointer,
                                               std::shared_ptr<worker_log> log) {
  return {
      [=](job_atom, const generate_job& job) { log->jobs.push_back(job); },
      [](done_atom, const prefill_done&) { FAIL_CHECK("a gateway computes nothing"); },
      [=](cancel_atom, const attempt_id& id) { log->cancels.push_back(id); },
      [](peer_down_atom, node_id) { FAIL_CHECK("peers are the node's business"); },
      [](status_atom) { return worker_load{}; },
      [](landed_atom, const attempt_id&, bool) { FAIL_CHECK("internal"); },
      [](tick_atom) { FAIL_CHECK("internal"); },
  };
}

class fake_conductor final : public conductor_actor::base {
 public:
  fake_conductor(caf::actor_config& config, std::shared_ptr<conductor_log> log)
      : conductor_actor::base(config), log_(std::move(log)) {}
  behavior_type make_behavior() override {
    return {
        [](join_atom, const node_info&) { return std::vector<node_info>{}; },
        [this](schedule_atom, const schedule_job& job) -> caf::result<placement_msg> {
          log_->asked.push_back(job);
          if (log_->silent) {
            promises_.push_back(make_response_promise<placement_msg>());
            return promises_.back();
          }
          return log_->answer(job);
        },
        [this](event_atom, const request_event& e) { log_->events.push_back(e); },
        [](blocks_atom, const block_event_batch&) { FAIL_CHECK("a gateway holds no blocks"); },
        [](report_atom, const node_report&) { FAIL_CHECK("reports are the node's business"); },
        [](status_atom) { return std::string{"{}"}; },
        [](tick_atom) {},
    };
  }
  void on_exit() override { promises_.clear(); }

 private:
  std::shared_ptr<conductor_log> log_;
  std::vector<caf::typed_response_promise<placement_msg>> promises_;
};

struct recorder final : token_sink {
  std::vector<std::int32_t> tokens, prompted, scored;
  std::optional<finish_kind> end;
  std::optional<generation_report> report;
  std::optional<error> cause;
  std::chrono::seconds retry_after{-1};
  std::size_t wanted = 1000;  ///< more are refused

  void prompt(std::span<const std::int32_t> prompt_tokens, std::span<const sampled_token> scores) override {
    CHECK(tokens.empty());
    prompted.assign(prompt_tokens.begin(), prompt_tokens.end());
    for (const auto& s : scores) scored.push_back(s.id);
  }
  bool token(const sampled_token& t) override {
    CHECK(!over());
    tokens.push_back(t.id);
    return tokens.size() < wanted;
  }
  void finished(finish_kind reason, const generation_report& r) override {
    CHECK(!over());
    end = reason;
    report = r;
  }
  void failed(const error& e, std::chrono::seconds again_in) override {
    CHECK(!over());
    cause = e;
    retry_after = again_in;
  }
  bool over() const { return end || cause; }
};

token_msg token(std::int32_t id) {
  token_msg t;
  t.id = id;
  return t;
}

struct gateway_world : testing::actor_fixture<caf::id_block::mooncaf> {
  gateway_world() {
    context->id = gateway_node;
    context->opts = default_options();
    context->layout = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .block_tokens = 4};
    context->root = hash_text128("model");
    place->answer = [](const schedule_job& job) {
      placement_msg p;
      p.id = job.id;
      p.prefill = prefill_id;
      p.decode = decode_id;
      p.prefill_node = prefill_node;
      p.decode_node = decode_node;
      return p;
    };
  }

  void open(bool with_conductor = true) {
    under_test = keep(sys.spawn<gateway>(context));
    node_info a, b;
    a.id = prefill_node;
    a.workers = {{prefill_id,
                  worker_role::prefill,
                  caf::actor_cast<caf::actor>(keep(sys.spawn(fake_prefill, prefill))),
                  1,
                  {}}};
    b.id = decode_node;
    b.workers = {{decode_id,
                  worker_role::decode,
                  caf::actor_cast<caf::actor>(keep(sys.spawn(fake_decode, decode))),
                  1,
                  {}}};
    tell(peer_up_atom_v, a);
    tell(peer_up_atom_v, b);
    nodes = {a, b};
    conductor = keep(sys.spawn<fake_conductor>(place));
    if (with_conductor) follow();
  }
  void follow() { tell(follow_atom_v, caf::actor_cast<caf::actor>(conductor)); }

  template <class... Args>
  void tell(Args&&... args) {
    caf::anon_send(under_test, std::forward<Args>(args)...);
    run();
  }

  generation make(std::shared_ptr<recorder> to, std::size_t prompt_tokens = 10) {
    generation g;
    g.prompt.resize(prompt_tokens);
    std::iota(g.prompt.begin(), g.prompt.end(), 100);
    g.sampling.max_tokens = 50;
    g.sink = std::move(to);
    return g;
  }
  client_request_ptr submit(std::vector<generation> what, duration age = {}) {
    auto client = std::make_shared<client_request>();
    client->arrived = sys.clock().now() - age;
    client->generations = std::move(what);
    tell(submit_atom_v, client);
    return client;
  }
  client_request_ptr submit_one(duration age = {}) { return submit({make(sink)}, age); }

  void first(const attempt_id& id, std::int32_t t, finish_kind end = finish_kind::none) {
    first_token m;
    m.id = id;
    m.token = token(t);
    m.finish = end;
    m.stats.cached_tokens = 4;
    m.stats.computed_tokens = 6;
    tell(first_atom_v, m);
  }
  void more(const attempt_id& id, std::uint32_t position, std::vector<std::int32_t> ids,
            finish_kind end = finish_kind::none) {
    token_run r;
    r.id = id;
    r.position = position;
    for (const auto t : ids) r.tokens.push_back(token(t));
    r.finish = end;
    token_batch batch;
    batch.runs.push_back(r);
    tell(tokens_atom_v, batch);
  }
  void broke(const attempt_id& id, bool retriable, error cause = {ec::out_of_space, "no slots"}) {
    attempt_failed m;
    m.id = id;
    m.cause = std::move(cause);
    m.retriable = retriable;
    tell(failed_atom_v, m);
  }
  /// Ticks until something is so. @returns whether it came true within half a minute.
  template <class Condition>
  bool ticks_until(Condition holds) {
    for (int tick = 0; tick < 600 && !holds(); ++tick) advance_time(50ms);
    return holds();
  }
  /// Waits for the job of attempt `n`, counted from 0, and gives its id.
  attempt_id placed(std::size_t n = 0) {
    REQUIRE(ticks_until([&] { return decode->jobs.size() > n && prefill->jobs.size() > n; }));
    return decode->jobs[n].id;
  }
  std::uint64_t held() { return ask<std::uint64_t>(under_test, status_atom_v).value(); }

  std::shared_ptr<node_context> context = std::make_shared<node_context>();
  std::shared_ptr<conductor_log> place = std::make_shared<conductor_log>();
  std::shared_ptr<worker_log> prefill = std::make_shared<worker_log>(),
                              decode = std::make_shared<worker_log>();
  std::shared_ptr<recorder> sink = std::make_shared<recorder>();
  std::vector<node_info> nodes;
  gateway_actor under_test;
  conductor_actor conductor;
};

using ids = std::vector<std::int32_t>;
using stages = std::vector<request_stage>;
constexpr auto failed_stage = request_stage::failed;

}  // namespace

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
  more(id, 4, {5}, finish_kind::length);
  CHECK(sink->tokens == ids{1, 2, 3, 4, 5});
  REQUIRE(sink->end);
  CHECK(*sink->end == finish_kind::length);
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
  first(id, 9, finish_kind::stop);
  CHECK(sink->tokens == ids{9});
  CHECK(sink->end == finish_kind::stop);
  CHECK(held() == 0);
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
  more(id, 3, {4}, finish_kind::stop);
  CHECK(sink->tokens == ids{1, 2, 3, 4});
  CHECK(sink->end == finish_kind::stop);
}

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
  more(again, 3, {4}, finish_kind::stop);
  CHECK(sink->tokens == ids{1, 2, 3, 4});
  CHECK(sink->end == finish_kind::stop);
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
  CHECK(prefill->cancels.empty());
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
  more(id, 2, {3}, finish_kind::stop);
  CHECK(sink->tokens == ids{1, 2, 3});
  CHECK(sink->end == finish_kind::stop);
}

TEST_CASE_FIXTURE(gateway_world,
                  "losing the decode node in mid-answer goes on elsewhere with every token once") {
  open();
  submit_one();
  const auto id = placed();
  first(id, 1);
  more(id, 1, {2, 3});
  tell(peer_down_atom_v, decode_node);
  CHECK(decode->cancels.empty());
  tell(peer_up_atom_v, nodes[1]);
  const auto again = placed(1);
  CHECK(decode->jobs[1].tokens.size() == 13);
  first(again, 4);
  more(again, 4, {5}, finish_kind::length);
  CHECK(sink->tokens == ids{1, 2, 3, 4, 5});
  CHECK(sink->report->output_tokens == 5);
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
  CHECK(place->events.back().stage == failed_stage);
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
  CHECK(place->stages_of(place->asked[0].id) == stages{failed_stage});
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world, "a conductor that answers too late is told that its placement is not used") {
  open();
  place->silent = true;
  submit_one();
  REQUIRE(place->asked.size() == 1);
  const auto unanswered = place->asked[0].id;
  advance_time(6s);
  CHECK(place->stages_of(unanswered) == stages{failed_stage});
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
  CHECK(sink->end == finish_kind::stop);
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
  const auto young = std::make_shared<recorder>();
  submit({make(young)});
  submit_one(20s);
  CHECK(!young->over());
  REQUIRE(sink->cause);
  CHECK(sink->cause->code == ec::unavailable);
  CHECK(sink->cause->detail.find("no decode instance") != std::string::npos);
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
    more(prefill->jobs[i].id, 1, {7}, finish_kind::stop);
  }
  for (const auto& s : {sink, second, third, other}) {
    CHECK(s->tokens.size() == 2);
    CHECK(s->end == finish_kind::stop);
  }
  CHECK(held() == 0);
}

TEST_CASE_FIXTURE(gateway_world,
                  "log-probabilities of the prompt are asked for until the first token, and told once") {
  open();
  auto wanted = make(sink, 3);
  wanted.sampling.logprobs = 0;
  wanted.sampling.prompt_logprobs = true;
  submit({wanted});
  CHECK(place->asked.at(0).keys.empty());  // nothing cached is of use
  broke(placed(), true);
  const auto id = placed(1);
  CHECK(prefill->jobs[1].sampling.prompt_logprobs);
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
  CHECK(!prefill->jobs[2].sampling.prompt_logprobs);
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
