#pragma once
// The gateway between a conductor and workers that do exactly what a test tells them, in virtual time.

#include <doctest/doctest.h>

#include <numeric>

#include "actors/gateway.hpp"
#include "actors/metrics/metrics.hpp"
#include "runtime/sched/block_hash.hpp"
#include "tests/support/actor_fixture.hpp"

namespace mooncaf::test {

using namespace std::chrono_literals;

constexpr node_id gateway_node{7}, prefill_node{10}, decode_node{20};
constexpr worker_id prefill_id{11}, decode_id{21};

/// What came to a fake, in order.
struct worker_log {
  std::vector<generate_job> jobs;
  std::vector<attempt_id> cancels;
  std::vector<roll_call> rolls;
  bool forgetful = false;  ///< knows of no attempt

  roll_answer answer_roll(const roll_call& call) {
    rolls.push_back(call);
    return forgetful ? roll_answer{call.live, {}} : roll_answer{};
  }
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

inline prefill_worker_actor::behavior_type fake_prefill(prefill_worker_actor::pointer,
                                                        std::shared_ptr<worker_log> log) {
  return {
      [=](job_atom, const generate_job& job) { log->jobs.push_back(job); },
      [](target_atom, const kv_target&) { FAIL_CHECK("a gateway has no slots"); },
      [=](cancel_atom, const attempt_id& id) { log->cancels.push_back(id); },
      [=](roll_atom, const roll_call& call) { return log->answer_roll(call); },
      [](peer_down_atom, node_id) { FAIL_CHECK("peers are the node's business"); },
      [](status_atom) { return worker_load{}; },
      [](leave_atom) { FAIL_CHECK("internal"); },
      [](layers_atom, const attempt_id&) { FAIL_CHECK("internal"); },
      [](stop_atom, const attempt_id&) { FAIL_CHECK("internal"); },
      [](sent_atom, const attempt_id&, bool) { FAIL_CHECK("internal"); },
      [](free_atom) { FAIL_CHECK("internal"); },
      [](tick_atom) { FAIL_CHECK("internal"); },
  };
}

inline decode_worker_actor::behavior_type fake_decode(decode_worker_actor::pointer,
                                                      std::shared_ptr<worker_log> log) {
  return {
      [=](job_atom, const generate_job& job) { log->jobs.push_back(job); },
      [](done_atom, const prefill_done&) { FAIL_CHECK("a gateway computes nothing"); },
      [=](cancel_atom, const attempt_id& id) { log->cancels.push_back(id); },
      [=](roll_atom, const roll_call& call) { return log->answer_roll(call); },
      [](peer_down_atom, node_id) { FAIL_CHECK("peers are the node's business"); },
      [](status_atom) { return worker_load{}; },
      [](leave_atom) { FAIL_CHECK("internal"); },
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
        [](keep_atom, node_id, const block_keys_t&) {
          FAIL_CHECK("a gateway holds no blocks");
          return block_keys_t{};
        },
        [](report_atom, const node_report&) {
          FAIL_CHECK("reports are the node's business");
          return roster_msg{};
        },
        [](status_atom) { return cluster_status{}; },
        [](claim_atom, const lead_claim&) {},
        [](claim_atom) {},
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
  std::optional<finish_reason> end;
  std::optional<generation_report> report;
  std::optional<error> cause;
  std::chrono::seconds retry_after{-1};
  std::size_t wanted = 1000;  ///< more are refused
  std::function<void()> at_end;

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
  void finished(finish_reason reason, const generation_report& r) override {
    CHECK(!over());
    end = reason;
    report = r;
    if (at_end) at_end();
  }
  void failed(const error& e, std::chrono::seconds again_in) override {
    CHECK(!over());
    cause = e;
    retry_after = again_in;
    if (at_end) at_end();
  }
  bool over() const { return end || cause; }
};

inline token_msg token(std::int32_t id) {
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
  void follow() { tell(follow_atom_v, caf::actor_cast<caf::actor>(conductor), std::uint64_t{0}); }

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

  void first(const attempt_id& id, std::int32_t t, finish_reason end = finish_reason::none) {
    first_token m;
    m.id = id;
    m.token = token(t);
    m.finish = end;
    m.stats.cached_tokens = 4;
    m.stats.computed_tokens = 6;
    tell(first_atom_v, m);
  }
  void more(const attempt_id& id, std::uint32_t position, std::vector<std::int32_t> ids,
            finish_reason end = finish_reason::none) {
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

}  // namespace mooncaf::test
