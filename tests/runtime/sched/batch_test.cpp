#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/prefill_batch.hpp"
#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

prefill_entry prompt(std::uint64_t id, std::uint32_t tokens, std::uint32_t cached = 0,
                     std::uint8_t priority = 1, duration since = 0s) {
  prefill_entry e;
  e.id = request_id{id};
  e.prompt_tokens = tokens;
  e.start = cached;
  e.priority = priority;
  e.arrival = start + since;
  return e;
}

std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> step_of(prefill_batch& batch,
                                                                             duration at = 0s) {
  std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> chunks;
  for (const auto& c : batch.next(start + at)) chunks.emplace_back(c.id.value, c.start, c.tokens);
  return chunks;
}

using chunks = std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>>;

}  // namespace

TEST_CASE(
    "a long prompt is cut into chunks that end at blocks, and what is left of a step goes to the next") {
  prefill_batch batch{{256, 320, 64}};
  CHECK(step_of(batch).empty());
  CHECK(batch.push(prompt(1, 600)));
  CHECK(batch.push(prompt(2, 100, 64, 1, 1s)));
  CHECK(batch.waiting_tokens() == 636);
  CHECK(step_of(batch) == chunks{{1, 0, 256}, {2, 64, 36}});
  CHECK(step_of(batch) == chunks{{1, 256, 256}});
  CHECK(step_of(batch) == chunks{{1, 512, 88}});
  CHECK(batch.size() == 0);
  CHECK(batch.waiting_tokens() == 0);
}

TEST_CASE("a cached prefix that ends inside a block leads back to its border") {
  prefill_batch batch{{128, 128, 64}};
  CHECK(batch.push(prompt(1, 400, 10)));
  CHECK(step_of(batch) == chunks{{1, 10, 118}});
  CHECK(step_of(batch) == chunks{{1, 128, 128}});
}

TEST_CASE("a step ends no more prompts than it may, and the others come next") {
  prefill_batch batch{{.chunk_tokens = 64, .max_batch_tokens = 64, .block_tokens = 64, .max_requests = 2}};
  for (std::uint64_t id = 1; id <= 5; ++id) CHECK(batch.push(prompt(id, 3)));
  CHECK(step_of(batch) == chunks{{1, 0, 3}, {2, 0, 3}});
  CHECK(step_of(batch) == chunks{{3, 0, 3}, {4, 0, 3}});
  CHECK(step_of(batch) == chunks{{5, 0, 3}});
}

TEST_CASE("chunks smaller than a block are possible") {
  prefill_batch batch{{32, 32, 64}};
  CHECK(batch.push(prompt(1, 100)));
  CHECK(step_of(batch) == chunks{{1, 0, 32}});
  CHECK(step_of(batch) == chunks{{1, 32, 32}});
  CHECK(step_of(batch) == chunks{{1, 64, 32}});
  CHECK(step_of(batch) == chunks{{1, 96, 4}});
}

TEST_CASE("classes go first, then deadlines, then arrival") {
  prefill_batch batch{{64, 64, 64}};
  auto late = prompt(3, 64);
  late.deadline = start + 9s;
  auto soon = prompt(4, 64, 0, 1, 1s);
  soon.deadline = start + 5s;
  batch.push(prompt(1, 64, 0, 2));
  batch.push(prompt(2, 64, 0, 1));
  batch.push(late);
  batch.push(soon);
  batch.push(prompt(5, 64, 0, 0, 2s));
  std::vector<std::uint64_t> order;
  for (auto c = step_of(batch, 2s); !c.empty(); c = step_of(batch, 2s)) order.push_back(std::get<0>(c[0]));
  CHECK(order == std::vector<std::uint64_t>{5, 4, 3, 2, 1});
}

TEST_CASE("ids are known once, and what is fully cached is not queued") {
  prefill_batch batch{{64, 64, 64}};
  CHECK(batch.push(prompt(1, 100)));
  CHECK(!batch.push(prompt(1, 100)));
  CHECK(!batch.push(prompt(2, 100, 100)));
  CHECK(!batch.push(prompt(2, 0)));
  batch.cancel(request_id{7});
  batch.cancel(request_id{1});
  CHECK(batch.waiting_tokens() == 0);
  CHECK(batch.push(prompt(1, 100)));
}

TEST_CASE("every token is handed out once, in order, under the budget, and nothing starves") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    prefill_batch_options options{16 + below(300), 16 + below(600), 1 + below(100), 2s};
    prefill_batch batch{options};
    std::map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> expected;  // next token, end
    std::map<std::uint64_t, time_point> arrived;
    auto now = start;
    std::uint64_t next_id = 1;
    // Enough urgent work to fill every step, and some that is not urgent.
    for (int step = 0; step < 2000; ++step) {
      now += 10ms;
      std::uint64_t waiting = batch.waiting_tokens();
      while (waiting < 2 * options.max_batch_tokens && step < 1500) {
        auto e = prompt(next_id++, 1 + below(900), 0, static_cast<std::uint8_t>(below(10) == 0 ? 2 : 0),
                        now - start);
        e.start = below(e.prompt_tokens);
        REQUIRE(batch.push(e));
        expected[e.id.value] = {e.start, e.prompt_tokens};
        arrived[e.id.value] = now;
        waiting = batch.waiting_tokens();
      }
      if (below(50) == 0 && !expected.empty()) {
        const auto victim = std::next(expected.begin(), below(expected.size()))->first;
        batch.cancel(request_id{victim});
        expected.erase(victim);
        arrived.erase(victim);
      }
      std::uint32_t sum = 0;
      std::set<std::uint64_t> seen;
      for (const auto& c : batch.next(now)) {
        REQUIRE(c.tokens > 0);
        REQUIRE(c.tokens <= options.chunk_tokens);
        REQUIRE(seen.insert(c.id.value).second);
        sum += c.tokens;
        auto& [at, end] = expected.at(c.id.value);
        REQUIRE(c.start == at);
        at += c.tokens;
        REQUIRE(at <= end);
        if (at == end) {
          expected.erase(c.id.value);
          arrived.erase(c.id.value);
        }
      }
      REQUIRE(sum <= options.max_batch_tokens);
      REQUIRE((sum > 0 || expected.empty()));
      std::uint64_t left = 0;
      for (const auto& [id, range] : expected) left += range.second - range.first;
      REQUIRE(batch.waiting_tokens() == left);
      // Two classes of 2 s age, and what was before it in the queue.
      for (const auto& [id, since] : arrived) REQUIRE(now - since < 15s);
    }
    CHECK(expected.empty());
  }
}

namespace {

decode_entry entry(std::uint64_t id, std::uint32_t context = 100, std::uint32_t max_tokens = 10,
                   std::uint8_t priority = 1, duration since = 0s) {
  decode_entry e;
  e.id = request_id{id};
  e.priority = priority;
  e.arrival = start + since;
  e.context_tokens = context;
  e.max_tokens = max_tokens;
  return e;
}

}  // namespace

TEST_CASE("requests join the running batch by class and arrival, and stay until they end") {
  decode_batch batch{{2}};
  batch.push(entry(1, 100, 10, 2));
  batch.push(entry(2, 100, 10, 1, 1s));
  batch.push(entry(3, 100, 10, 1));
  batch.push(entry(4, 100, 10, 0, 2s));
  CHECK(batch.admit(start + 2s) == std::vector{request_id{4}, request_id{3}});
  CHECK(batch.admit(start + 2s).empty());
  batch.push(entry(5, 100, 10, 0, 3s));
  batch.cancel(request_id{3});
  CHECK(batch.admit(start + 3s) == std::vector{request_id{5}});
  CHECK(batch.waiting() == 2);
  batch.cancel(request_id{5});
  CHECK(batch.admit(start + 60s) == std::vector{request_id{1}});  // waited longest: its class has aged
}

TEST_CASE("room is kept for every token that a request may still generate") {
  decode_batch batch{{8, 10s, 1000}};
  CHECK(!batch.push(entry(1, 900, 200)));  // never fits
  CHECK(batch.push(entry(2, 500, 100)));
  CHECK(batch.push(entry(3, 400, 100, 1, 1s)));
  CHECK(batch.push(entry(4, 10, 10, 1, 2s)));
  CHECK(!batch.push(entry(4, 10, 10)));
  CHECK(batch.admit(start + 2s) ==
        std::vector{request_id{2}});  // 3 does not fit, and is not overtaken for ever
  batch.cancel(request_id{2});
  CHECK(batch.admit(start + 2s) == std::vector{request_id{3}, request_id{4}});
  CHECK(batch.push(entry(5, 400, 81, 1, 3s)));
  CHECK(batch.admit(start + 3s).empty());  // 520 of 1,000 are kept for those that run
  batch.cancel(request_id{5});
  CHECK(batch.push(entry(6, 400, 80, 1, 3s)));
  CHECK(batch.admit(start + 3s) == std::vector{request_id{6}});
}

TEST_CASE("the double check counts everyone who is or will be in the batch") {
  const decode_model model{linear_decode(0.01)};
  decode_batch batch{{8}};
  CHECK(!check_decode(batch.question(entry(1), 1ms), model));
  for (std::uint64_t id = 1; id <= 3; ++id) batch.push(entry(id));
  batch.admit(start);
  batch.push(entry(4));
  CHECK(!check_decode(batch.question(entry(5), 15ms + 100us), model));  // 10 ms + 5
  const auto refused = check_decode(batch.question(entry(5), 14ms + 900us), model);
  REQUIRE(refused.has_value());
  CHECK(refused->stage == reject_stage::at_decode);
}

TEST_CASE("a decode batch keeps its limits and leaves nobody behind") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    const decode_batch_options options{1 + below(10), 1s, 3000};
    decode_batch batch{options};
    std::map<request_id, std::uint64_t> waiting, running;
    auto now = start;
    for (std::uint64_t id = 1; id <= 800; ++id) {
      now += 50ms;
      const auto e =
          entry(id, 1 + below(1000), below(1500), static_cast<std::uint8_t>(below(3)), now - start);
      if (batch.push(e)) waiting[e.id] = e.context_tokens + e.max_tokens;
      for (const auto moved : batch.admit(now)) {
        REQUIRE(waiting.contains(moved));
        running[moved] = waiting[moved];
        waiting.erase(moved);
      }
      std::uint64_t sum = 0;
      for (const auto& [r, tokens] : running) sum += tokens;
      REQUIRE(sum <= options.max_context_tokens);
      REQUIRE(running.size() <= options.max_batch);
      REQUIRE(running.size() == batch.running().size());
      REQUIRE(waiting.size() == batch.waiting());
      REQUIRE((!running.empty() || waiting.empty()));
      for (auto n = below(4); n > 0 && !running.empty(); --n) {
        const auto victim = std::next(running.begin(), below(running.size()))->first;
        batch.cancel(victim);
        running.erase(victim);
      }
    }
    for (int i = 0; i < 2000 && !(waiting.empty() && running.empty()); ++i) {
      for (const auto moved : batch.admit(now)) {
        running[moved] = 0;
        waiting.erase(moved);
      }
      if (running.empty()) break;
      batch.cancel(running.begin()->first);
      running.erase(running.begin());
    }
    CHECK(waiting.empty());
    CHECK(batch.push(entry(801, 2900, 100)));
    CHECK(batch.admit(now) == std::vector{request_id{801}});  // all the memory is free again
  }
}
