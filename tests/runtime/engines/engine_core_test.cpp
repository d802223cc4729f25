// The worker in front of an engine: each job ends once, tokens come in order, and blocks and load are told as they are.

#include "runtime/engines/engine_core.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "recorded.hpp"
#include "runtime/sched/block_hash.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id worker_node{7}, front{8}, other_front{9};

engine_core_options usual_engine() {
  engine_core_options o;
  o.self = worker_node;
  o.terms = {"m", 1000, test_root};
  o.block_tokens = 4;
  o.end_ids = {2};
  o.max_attempts = 8;
  return o;
}

completion_piece piece_of(std::vector<std::int32_t> ids, finish_reason finish = finish_reason::none) {
  completion_piece out;
  for (const auto id : ids) out.tokens.push_back({id, 0, {}});
  out.finish = finish;
  return out;
}

struct core_world {
  explicit core_world(engine_core_options o = usual_engine()) : core(std::move(o)) {}

  work_order order(std::uint64_t request, std::size_t prompt, std::uint32_t answer, node_id gateway = front) {
    work_order out;
    out.id = {{request}, 0};
    out.tokens = numbers(100, prompt);
    out.prompt_tokens = static_cast<std::uint32_t>(prompt);
    out.root = test_root;
    out.keys = block_keys(out.tokens, 4, test_root);
    out.sampling.max_tokens = answer;
    out.gateway_node = gateway;
    return out;
  }
  void take(const work_order& job) {
    core.take(job, now);
    collect();
  }
  void hear(const work_order& job, const completion_piece& piece) {
    core.heard(job.id.owner(), piece, now);
    collect();
  }
  void collect() {
    for (auto& action : core.take_actions()) {
      if (const auto* a = std::get_if<engine_action::ask>(&action)) asked.push_back(a->owner);
      if (const auto* a = std::get_if<engine_action::hang_up>(&action)) hung_up.push_back(a->owner);
      if (const auto* a = std::get_if<engine_action::forget>(&action)) forgotten.push_back(a->owner);
      if (auto* a = std::get_if<engine_action::announce>(&action)) announced.push_back(std::move(a->batch));
      if (auto* a = std::get_if<first_token>(&action)) firsts.push_back(std::move(*a));
      if (auto* a = std::get_if<token_run>(&action)) runs.push_back(std::move(*a));
      if (auto* a = std::get_if<attempt_failed>(&action)) failed.push_back(std::move(*a));
    }
  }
  worker_load prefill() const { return core.load(now).first; }
  worker_load decode() const { return core.load(now).second; }

  engine_core core;
  time_point now{1h};
  std::vector<std::uint64_t> asked, hung_up, forgotten;
  std::vector<block_event_batch> announced;
  std::vector<first_token> firsts;
  std::vector<token_run> runs;
  std::vector<attempt_failed> failed;
};

}  // namespace

TEST_CASE_FIXTURE(core_world, "an answer is passed on token by token and ends as a worker's would") {
  const auto job = order(1, 10, 3);
  take(job);
  CHECK(asked == std::vector{job.id.owner()});
  CHECK_FALSE(core.wants(job.id));
  CHECK(prefill().waiting == 1);
  CHECK(prefill().waiting_tokens == 10);
  now += 200ms;
  hear(job, piece_of({50}));
  REQUIRE(firsts.size() == 1);
  CHECK(firsts[0].stats.computed_tokens == 10);
  CHECK(firsts[0].stats.compute_ns == duration{200ms}.count());
  CHECK(decode().running == 1);
  CHECK(decode().context_tokens == 11);
  now += 20ms;
  hear(job, piece_of({51, 52}));
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].position == 1);
  CHECK(runs[0].tokens.size() == 2);
  CHECK(runs[0].finish == finish_reason::length);
  CHECK(forgotten == std::vector{job.id.owner()});
  CHECK(decode().step_ns == duration{10ms}.count());
  CHECK(decode().busy_ns == duration{220ms}.count());
  CHECK(core.size() == 0);
  hear(job, piece_of({53}));  // late words of the engine
  core.ended(job.id.owner(), {}, true, now);
  collect();
  CHECK(runs.size() == 1);
  CHECK(failed.empty());
}

TEST_CASE_FIXTURE(core_world, "an end token ends an answer, and so does the engine's word") {
  const auto job = order(1, 10, 30), job2 = order(2, 10, 30), job3 = order(3, 10, 30);
  take(job);
  hear(job, piece_of({50}));
  hear(job, piece_of({51, 2, 77}));
  CHECK(runs.at(0).tokens.size() == 2);
  CHECK(runs.at(0).finish == finish_reason::stop);
  take(job2);
  hear(job2, piece_of({2}));
  CHECK(firsts.at(1).finish == finish_reason::stop);
  take(job3);
  hear(job3, piece_of({50}));
  hear(job3, piece_of({}, finish_reason::length));  // its context is full
  CHECK(runs.back().tokens.empty());
  CHECK(runs.back().finish == finish_reason::length);
  CHECK(forgotten.size() == 3);
  CHECK(failed.empty());
}

TEST_CASE_FIXTURE(core_world,
                  "requests that came to the engine past us are part of its load and of its steps") {
  const auto job = order(1, 10, 30);
  take(job);
  hear(job, piece_of({50}));
  core.counted(4);
  CHECK(decode().others == 0);  // one count may be of another moment
  core.counted(6);
  CHECK(decode().others == 3);
  now += 10ms;
  hear(job, piece_of({51}));
  CHECK(decode().step_batch == 4);
  CHECK(decode().step_context_tokens == 4 * 12);
  CHECK(decode().running == 1);
  CHECK(decode().context_tokens == 4 * 12);
  core.counted(1);
  CHECK(decode().others == 0);
  core.counted(9), core.counted(9);
  CHECK(decode().others == 8);
  core.looked({ec::peer_lost, "gone"}, now);  // and everybody's requests with it
  CHECK(decode().others == 0);
}

TEST_CASE_FIXTURE(core_world, "prompts are computed one after the other") {
  const auto a = order(1, 10, 30), b = order(2, 20, 30);
  take(a);
  now += 10ms;
  take(b);
  now += 90ms;
  hear(a, piece_of({50}));
  now += 150ms;
  hear(b, piece_of({50}));
  CHECK(firsts.at(1).stats.queue_ns == duration{90ms}.count());
  CHECK(firsts.at(1).stats.compute_ns == duration{150ms}.count());
}

TEST_CASE_FIXTURE(core_world,
                  "a broken stream is given back, a refusal that would be the same elsewhere is not") {
  const auto a = order(1, 10, 30), b = order(2, 10, 30), c = order(3, 10, 30);
  take(a), take(b), take(c);
  core.ended(a.id.owner(), {ec::unavailable, "broke off"}, true, now);
  core.ended(b.id.owner(), {ec::invalid_argument, "too long"}, false, now);
  core.ended(c.id.owner(), {}, true, now);
  collect();
  REQUIRE(failed.size() == 3);
  CHECK(failed[0].retriable);
  CHECK_FALSE(failed[1].retriable);
  CHECK(failed[2].cause.detail == "the engine's answer has no end");
  CHECK(prefill().away.empty());
}

TEST_CASE_FIXTURE(core_world, "an engine that is gone takes nothing until it answers again") {
  core.follow();
  kv_news news;
  news.blocks = {{0, 1}};
  news.tokens = {100, 101, 102, 103};
  news.block_tokens = 4;
  news.plain = 1;
  core.news({{news}, false});
  const auto a = order(1, 10, 30), b = order(2, 10, 30);
  take(a);
  hear(a, piece_of({50}));
  CHECK(firsts.at(0).stats.cached_tokens == 4);
  take(b);
  core.ended(b.id.owner(), {ec::peer_lost, "refused"}, true, now);
  collect();
  CHECK(failed.size() == 2);
  CHECK(hung_up.size() == 2);
  CHECK(prefill().away == "peer lost: refused");
  CHECK(decode().away == prefill().away);
  CHECK(core.held().size() == 0);
  CHECK(announced.back().events.at(0).what == block_change::removed);
  take(order(3, 10, 30));
  CHECK(failed.size() == 3);
  CHECK(failed[2].retriable);
  core.looked({}, now);
  CHECK(prefill().away.empty());
  take(order(4, 10, 30));
  CHECK(failed.size() == 3);
  // A slow answer is no sign of death, three are.
  for (int i = 0; i < 2; ++i) core.looked({ec::timed_out, "silent"}, now);
  CHECK(prefill().away.empty());
  core.looked({ec::timed_out, "silent"}, now);
  CHECK(prefill().away == "timed out: silent");
}

TEST_CASE_FIXTURE(core_world, "a lost gateway's requests end, and those that it has forgotten") {
  const auto a = order(1, 10, 30), b = order(2, 10, 30, other_front), c = order(3, 10, 30);
  take(a), take(b), take(c);
  const attempt_id unknown{{99}, 0};
  const auto answer = core.answer_roll({front, {a.id, unknown}}, now);
  collect();
  CHECK(answer.unknown == std::vector{unknown});
  CHECK(answer.waiting.empty());
  CHECK(hung_up == std::vector{c.id.owner()});
  core.peer_lost(other_front, now);
  collect();
  CHECK(hung_up.size() == 2);
  CHECK(core.size() == 1);
  core.leave({ec::unavailable, "the node leaves"}, now);
  collect();
  CHECK(failed.size() == 1);
  take(order(4, 10, 30));
  CHECK(failed.size() == 2);
  CHECK(core.size() == 0);
}

TEST_CASE("without news the engine is taken to hold what it computed") {
  auto options = usual_engine();
  options.told = false;
  options.assumed_blocks = 100;
  core_world w{options};
  w.core.follow();
  const auto job = w.order(1, 10, 4);
  w.take(job);
  w.hear(job, piece_of({50}));
  w.hear(job, piece_of({51, 52, 53}));
  // 14 tokens, of which the last was never put through the model: 3 blocks.
  CHECK(w.core.held().size() == 3);
  CHECK(w.announced.back().events.size() == 3);
  const auto again = w.order(2, 10, 4);
  w.take(again);
  w.hear(again, piece_of({50}));
  CHECK(w.firsts.at(1).stats.cached_tokens == 8);
}

TEST_CASE("whatever happens in whatever order, every job ends once and nothing stays") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    core_world w;
    w.core.follow();
    std::vector<work_order> jobs;
    std::map<std::uint64_t, std::uint32_t> produced;
    for (int step = 0; step < 200; ++step) {
      w.now += std::chrono::milliseconds(random() % 50);
      const auto what = random() % 100;
      const auto any = [&]() -> const work_order& { return jobs[random() % jobs.size()]; };
      if (jobs.empty() || what < 30) {
        jobs.push_back(w.order(jobs.size() + 1, 1 + random() % 30, 1 + random() % 6,
                               random() % 2 ? front : other_front));
        w.take(jobs.back());
      } else if (what < 75) {
        std::vector<std::int32_t> ids(random() % 3);
        for (auto& id : ids) id = static_cast<std::int32_t>(random() % 40);
        w.hear(any(), piece_of(ids, random() % 20 == 0 ? finish_reason::stop : finish_reason::none));
      } else if (what < 82) {
        w.core.cancel(any().id, w.now);
      } else if (what < 88) {
        w.core.ended(any().id.owner(), random() % 2 ? error{ec::unavailable, "x"} : error{},
                     random() % 2 == 0, w.now);
      } else if (what < 91) {
        w.core.looked(random() % 2 ? error{ec::peer_lost, "x"} : error{}, w.now);
      } else if (what < 94) {
        w.core.peer_lost(random() % 2 ? front : other_front, w.now);
      } else {
        w.core.looked({}, w.now);
      }
      w.collect();
      const auto [prefill, decode] = w.core.load(w.now);
      CHECK(prefill.waiting + decode.running == w.core.size());
    }
    w.core.leave({ec::unavailable, "over"}, w.now);
    w.collect();
    CHECK(w.core.size() == 0);
    CHECK(w.decode().running == 0);
    CHECK(w.decode().context_tokens == 0);
    auto ended = w.forgotten;
    std::ranges::sort(ended);
    CHECK(std::ranges::adjacent_find(ended) == ended.end());
    CHECK(ended.size() == jobs.size());
    for (const auto& first : w.firsts) CHECK(produced.emplace(first.id.owner(), 1).second);
    for (const auto& run : w.runs) {
      CHECK(run.position == produced[run.id.owner()]);
      produced[run.id.owner()] += static_cast<std::uint32_t>(run.tokens.size());
    }
    for (const auto& job : jobs) CHECK(produced[job.id.owner()] <= job.sampling.max_tokens);
  }
}
