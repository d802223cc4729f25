// Admission `adaptive`: what is remembered of the last minutes, when it is played again, and what comes of it.

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/answer_lengths.hpp"
#include "runtime/sched/shadow_core.hpp"
#include "runtime/sched/slowest_gaps.hpp"
#include "tests/runtime/sched/world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

schedule_request prompt(std::uint64_t id, std::span<const block_key> keys, std::uint32_t max_tokens = 4000) {
  schedule_request r;
  r.id = request_id{id};
  r.keys = keys;
  r.prompt_tokens = static_cast<std::uint32_t>(keys.size()) * 100 + 50;
  r.max_tokens = max_tokens;
  return r;
}

conductor_options adaptive_options() {
  auto o = small_options();
  o.admission = admission_policy::adaptive;
  o.ttft_slo = 2s;
  return o;
}

/// A share of `judged`, all of them the same.
std::vector<played_rule> shares(std::initializer_list<std::pair<admission_rule, std::uint64_t>> all) {
  std::vector<played_rule> out;
  for (const auto& [rule, met] : all) out.push_back({rule, met, 1000});
  return out;
}

constexpr admission_rule by_queue{admission_policy::queue}, by_price{admission_policy::priced};

}  // namespace

TEST_CASE("a request's TBT is the mean of its slowest tenth of gaps, of ten at the least") {
  slowest_gaps few;
  CHECK(few.mean() == duration{});
  for (const auto ms : {10, 30, 20}) few.add(std::chrono::milliseconds(ms));
  CHECK(few.mean() == 20ms);
  slowest_gaps many;
  for (int i = 1; i <= 200; ++i) many.add(std::chrono::milliseconds(i));
  CHECK(many.mean() == 190500us);  // 181 … 200 ms
  many.add(-5ms);                  // a clock that went back is no gap
  CHECK(many.mean() == 190ms);     // 180 … 200 ms
}

TEST_CASE(
    "answers under way count for as long as they are: the mean of all is found from a part that ended") {
  // Lengths fall off exponentially, mean 400; the clients saw each for a while, and only the end of the short ones.
  std::mt19937_64 random{7};
  std::exponential_distribution<double> length{1.0 / 400};
  std::uniform_real_distribution<double> seen{0, 900};
  answer_lengths lengths;
  double short_ones = 0, ended = 0;
  for (int i = 0; i < 20'000; ++i) {
    const double all = length(random), so_far = seen(random);
    if (all <= so_far) lengths.ended(static_cast<std::uint32_t>(all) + 1), short_ones += all, ++ended;
    else lengths.under_way(static_cast<std::uint32_t>(so_far));
  }
  lengths.sum_up();
  CHECK(short_ones / ended < 280);  // what is known by its end alone is far from the truth
  double mean = 0, mean_beyond = 0;
  for (int i = 0; i < 1000; ++i) {
    mean += lengths.draw((i + 0.5) / 1000) / 1000.0;
    mean_beyond += lengths.draw((i + 0.5) / 1000, 500) / 1000.0;
  }
  CHECK(mean == doctest::Approx(400).epsilon(0.08));
  CHECK(mean_beyond == doctest::Approx(900).epsilon(0.08));
  CHECK(lengths.draw(0.9999, 1 << 20) > 1 << 20);
}

TEST_CASE("what is remembered: each request once, for a while, its answer filled in where it is not known") {
  request_history history{{.span = 60s, .requests = 100, .blocks = 1000}};
  const auto keys = test::chain(1, 3);
  for (std::uint64_t id = 1; id <= 40; ++id) {
    const auto now = start + std::chrono::seconds(id);
    history.came(prompt(id, keys), {node_id{2}, 1}, 0, now);
    history.came(prompt(id, keys), {node_id{9}, 3}, 0, now + 1ms);  // it asks again
    if (id % 2 == 0) {
      history.begun(request_id{id}, now + 1s);
      history.answered(request_id{id}, 200, now + 3s);
    }
  }
  history.answered(request_id{77}, 1, start);  // of a stranger
  const auto all = history.recall(start + 60s);
  REQUIRE(all.size() == 40);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].id == request_id{i + 1});
    CHECK(all[i].holder == prefix_holder{node_id{2}, 1});
    CHECK(all[i].output_tokens == 200);
    CHECK(all[i].keys == keys);
  }
  // One under way is longer than it is by now: 100 tokens a second, as the others had.
  history.came(prompt(41, keys), {}, 0, start + 41s);
  history.begun(request_id{41}, start + 42s);
  CHECK(history.recall(start + 52s).back().output_tokens > 900);
  CHECK(history.recall(start + 500s).back().output_tokens == 4000);  // it may have no more

  history.came(prompt(42, keys), {}, 0, start + 90s);
  CHECK(history.size() == 13);  // 30 s … 90 s
  CHECK_FALSE(history.knows(request_id{29}));
  for (std::uint64_t id = 100; id < 400; ++id) history.came(prompt(id, keys), {}, 0, start + 90s);
  CHECK(history.size() == 100);
  const auto most = test::chain(2, 400);
  history.came(prompt(400, most), {}, 0, start + 90s);
  history.came(prompt(401, most), {}, 0, start + 90s);
  CHECK(history.size() <= 2 + 200 / 3);
}

TEST_CASE("the rule in force stays until another one is clearly and lastingly ahead") {
  rule_choice choice;
  CHECK_FALSE(choice.consider(by_queue, {}));
  CHECK_FALSE(choice.consider(by_queue, shares({{by_queue, 900}, {by_price, 900}})));
  // Ahead by a lot, once: not enough.
  CHECK_FALSE(choice.consider(by_queue, shares({{by_queue, 900}, {by_price, 930}})));
  CHECK_FALSE(choice.consider(by_queue, shares({{by_queue, 900}, {by_price, 880}})));
  int plays = 0;
  std::optional<admission_rule> next;
  while (!next && plays < 20)
    ++plays, next = choice.consider(by_queue, shares({{by_queue, 900}, {by_price, 930}}));
  REQUIRE(next);
  CHECK(*next == by_price);
  CHECK(plays > 1);
  CHECK(plays < 8);
  CHECK_FALSE(choice.consider(by_price, shares({{by_queue, 900}, {by_price, 930}})));
  CHECK(text_of(choice.standings()).starts_with("queue 0.9"));
}

TEST_CASE("how far ahead another rule must be is a number of requests, whatever part of all they are") {
  const auto goes_over = [](std::uint64_t judged, std::uint64_t met, std::uint64_t other) {
    rule_choice choice;
    const std::vector<played_rule> played{{by_queue, met, judged}, {by_price, other, judged}};
    std::optional<admission_rule> next;
    for (int plays = 0; plays < 50 && !next; ++plays) next = choice.consider(by_queue, played);
    return next.has_value();
  };
  CHECK_FALSE(goes_over(50, 35, 44));
  CHECK(goes_over(50, 35, 46));
  CHECK_FALSE(goes_over(2000, 1900, 1909));
  CHECK(goes_over(2000, 1900, 1911));
  CHECK_FALSE(goes_over(0, 0, 0));
}

TEST_CASE("a play is due now and then, one at a time, and takes a tenth of a processor at most") {
  auto core = small_cluster(adaptive_options());
  shadow_core shadow;
  const auto every = core.options().shadow.every;
  CHECK_FALSE(shadow.due(core, start));
  CHECK_FALSE(shadow.due(core, start + every));  // nothing came
  const auto keys = test::chain(3, 4);
  for (std::uint64_t id = 1; id <= 50; ++id) core.came(prompt(id, keys), start + id * 200ms);
  auto now = start + 11s;
  const auto question = shadow.due(core, now);
  REQUIRE(question);
  CHECK(question->requests.size() == 50);
  CHECK(question->prefill.size() == 3);
  CHECK(question->decode == 2);
  CHECK(question->max_batch == 8);
  CHECK_FALSE(shadow.due(core, now + 10 * every));  // it is being played
  CHECK_FALSE(shadow.played(core, {shares({{by_queue, 900}, {by_price, 900}}), {}}, 4s, now));
  CHECK_FALSE(shadow.due(core, now + 35s));
  CHECK(shadow.due(core, now + 36s));
  CHECK(shadow.played(core, {shares({{by_queue, 100}, {by_price, 990}}), {}}, 1ms, now + 36s) == by_price);
  CHECK(core.rule() == by_price);
  CHECK(shadow.changes() == 1);

  auto fixed = small_cluster(small_options());
  fixed.came(prompt(1, keys), start);
  shadow_core none;
  CHECK_FALSE(none.due(fixed, start));
  CHECK_FALSE(none.due(fixed, start + 1h));
  CHECK(recall(fixed, start).requests.empty());
}

TEST_CASE("requests that wait when another rule comes into force are decided about, each once") {
  auto core = small_cluster(adaptive_options(), 1, 1);
  admission_queue queue{core, {100, 30s}};
  const auto keys = test::chain(5, 30);  // 3 s of prefill
  std::vector<decision> decided;
  for (std::uint64_t id = 1; id <= 12; ++id) queue.submit(prompt(id, keys), start, decided);
  const auto at_once = decided.size();
  CHECK(at_once > 0);
  CHECK(queue.size() == 12 - at_once);
  core.play_by({admission_policy::none}, {}, start + 1s);
  queue.advance(start + 1s, decided);
  CHECK(queue.size() == 0);
  REQUIRE(decided.size() == 12);
  std::vector<bool> seen(13);
  for (const auto& d : decided) {
    CHECK(d.outcome);
    CHECK_FALSE(seen[d.id.value]);
    seen[d.id.value] = true;
  }
  // Back in line: what there is no room for waits again.
  core.play_by(by_queue, {}, start + 2s);
  queue.submit(prompt(20, keys), start + 2s, decided);
  CHECK(queue.waits(request_id{20}));
}
