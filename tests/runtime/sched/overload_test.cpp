#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "runtime/sched/decode_forecast.hpp"
#include "runtime/sched/decode_survival.hpp"
#include "runtime/sched/learned_margin.hpp"
#include "runtime/sched/price_book.hpp"
#include "runtime/sched/session_answers.hpp"
#include "runtime/sched/tenant_answers.hpp"
#include "runtime/sched/work_rate.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr time_point at(double seconds) { return time_point{from_seconds(seconds)}; }

decode_survival::decoding prompt(std::uint64_t tokens) {
  return {tokens, tokens, answer_class::of(tokens), 0};
}

}  // namespace

TEST_CASE("until enough requests have ended, all are taken to decode for the configured span") {
  decode_survival s{20s};
  s.add(at(10), prompt(1000));
  s.add(at(12), prompt(3000));
  const auto soon = s.at(at(25), at(12));
  CHECK(soon.requests == doctest::Approx(2));
  CHECK(soon.context_tokens == doctest::Approx(4000));
  CHECK(s.at(at(31), at(12)).requests == doctest::Approx(1));
  s.remove(at(10), prompt(1000));
  s.remove(at(12), prompt(3000));
  CHECK(s.at(at(25), at(12)).requests == 0);
}

TEST_CASE("the expected decode load follows what decode times have been, by length of prompt") {
  decode_survival s{20s};
  // Short prompts: half of them decode for 2 s, half for 40 s. Long ones: all for 10 s.
  for (int i = 0; i < 2000; ++i) {
    s.observe(at(0), answer_class::of(1000), at(i % 2 == 0 ? 2 : 40));
    s.observe(at(0), answer_class::of(50'000), at(10));
  }
  for (int i = 0; i < 100; ++i) s.add(at(100), prompt(1000));
  CHECK(s.at(at(101), at(100)).requests == doctest::Approx(100).epsilon(0.05));
  CHECK(s.at(at(105), at(100)).requests == doctest::Approx(50).epsilon(0.05));
  CHECK(s.at(at(160), at(100)).requests == doctest::Approx(0));
  // Who is still there after 5 s is of the long-lasting half.
  CHECK(s.at(at(120), at(106)).requests == doctest::Approx(100).epsilon(0.05));
  for (int i = 0; i < 100; ++i) s.remove(at(100), prompt(1000));
  for (int i = 0; i < 100; ++i) s.add(at(100), prompt(50'000));
  CHECK(s.at(at(107), at(100)).requests == doctest::Approx(100).epsilon(0.05));
  CHECK(s.at(at(113), at(100)).requests < 10);
}

TEST_CASE(
    "whatever is added and removed in whatever order, nothing is left of it, and it never goes below zero") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random{seed};
    decode_survival s{5s};
    std::vector<std::pair<time_point, std::uint64_t>> open;
    double now = 100;
    for (int i = 0; i < 3000; ++i) {
      now += 0.1;
      if (open.empty() || random() % 2 == 0) {
        open.emplace_back(at(now + static_cast<double>(random() % 400) * 0.1), 1 + random() % 100'000);
        s.add(open.back().first, prompt(open.back().second));
      } else {
        const auto which = random() % open.size();
        s.remove(open[which].first, prompt(open[which].second));
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
      }
      const auto load = s.at(at(now + 3), at(now));
      INFO("seed ", seed, " step ", i);
      REQUIRE(load.requests >= 0);
      REQUIRE(load.requests <= static_cast<double>(open.size()) + 1e-9);
    }
    for (const auto& [when, tokens] : open) s.remove(when, prompt(tokens));
    CHECK(s.at(at(now + 100), at(now)).requests == 0);
    CHECK(s.at(at(now + 100), at(now)).context_tokens == 0);
  }
}

TEST_CASE("a year without a request costs a survival curve and a forecast no memory") {
  decode_survival s{20s};
  decode_forecast f{20s};
  for (const double when : {100.0, 100.0 + 86'400, 100.0 + 400 * 86'400.0}) {
    f.trim(at(when));
    s.add(at(when), prompt(1000));
    f.add(at(when), 1000);
    CHECK(s.at(at(when + 1), at(when)).requests >= 1);
    CHECK(f.at(at(when + 1)).requests >= 1);
  }
  CHECK(s.buckets() == 3);  // all three are still charged
  CHECK(f.buckets() == 1);  // nobody decodes for longer than t_d
  for (const double when : {100.0, 100.0 + 86'400, 100.0 + 400 * 86'400.0}) s.remove(at(when), prompt(1000));
  CHECK(s.buckets() == 0);
}

TEST_CASE("one instance's share of the decode load is its own requests'") {
  decode_survival s{20s};
  s.add(at(10), {1000, 3000, 0, 0});
  s.add(at(10), {500, 700, 0, 2});
  CHECK(s.at(0, at(11), at(10)).memory_tokens == doctest::Approx(3000));
  CHECK(s.at(1, at(11), at(10)).memory_tokens == 0);
  CHECK(s.at(2, at(11), at(10)).context_tokens == doctest::Approx(500));
  CHECK(s.at(7, at(11), at(10)).requests == 0);
  CHECK(s.at(at(11), at(10)).memory_tokens == doctest::Approx(3700));
}

TEST_CASE(
    "while more are under way than have ended, nobody is expected to end: the first to end were short") {
  decode_survival s{20s};
  for (int i = 0; i < 100; ++i) s.add(at(0), prompt(1000));
  for (int i = 0; i < 40; ++i) {
    s.observe(at(0), answer_class::of(1000), at(1));
    s.remove(at(0), prompt(1000));
  }
  CHECK(s.at(at(30), at(1)).requests == doctest::Approx(60));
  for (int i = 0; i < 40; ++i) {
    s.observe(at(0), answer_class::of(1000), at(1));
    s.remove(at(0), prompt(1000));
  }
  CHECK(s.at(at(30), at(1)).requests < 20);
}

TEST_CASE("answers are told apart by the session's previous one, by a small bound, and else by the prompt") {
  CHECK(answer_class::of(1000) != answer_class::of(5000));
  CHECK(answer_class::of(1000, 2048) == answer_class::of(1000));      // no bound that says anything
  CHECK(answer_class::of(1000, 16) == answer_class::of(50'000, 16));  // sixteen tokens after any prompt
  CHECK(answer_class::of(1000, 0, 20) == answer_class::of(50'000, 0, 20));
  CHECK(answer_class::of(1000, 0, 20) != answer_class::of(1000, 0, 600));
  CHECK(answer_class::of(1000, 0, 0, 20) == answer_class::of(50'000, 0, 0, 20));
  CHECK(answer_class::of(1000, 0, 0, 20) != answer_class::of(1000, 0, 0, 600));
  CHECK(answer_class::of(1000, 0, 20, 600) == answer_class::of(1000, 0, 20));  // the session says more
  CHECK(answer_class::of(1000, 16, 0, 600) == answer_class::of(1000, 16));     // … and so does its bound
  CHECK(answer_class::of(1000, 16, 600) == answer_class::of(1000, 16));        // cut off before that length
  CHECK(answer_class::of(1000, 1024, 20) == answer_class::of(1000, 0, 20));
  for (const std::uint32_t earlier : {1u, 31u, 32u, 511u, 512u, ~0u})
    CHECK(answer_class::of(1, 0, earlier) < answer_class::count);
}

TEST_CASE("a prompt that continues another one is known by the answer that the other one got") {
  session_answers sessions;
  const auto key = [](int i) { return hash_text128(std::to_string(i)); };
  const std::vector<block_key> first{key(1), key(2)}, next{key(1), key(2), key(3), key(4)},
      other{key(1), key(9)};
  CHECK(sessions.earlier(next) == 0);
  sessions.remember(first.back(), 300);
  CHECK(sessions.earlier(next) == 300);
  CHECK(sessions.earlier(other) == 0);
  sessions.remember(next.back(), 20);
  CHECK(sessions.earlier(next) == 20);
  sessions.remember(next.back(), 0);  // nothing known: not forgotten
  CHECK(sessions.earlier(next) == 20);
}

TEST_CASE(
    "a tenant's answers are as long as its recent ones were, and nobody's places are taken by strangers") {
  tenant_answers tenants;
  const std::uint64_t a = 1, same_place = 1 + (1 << 12);
  for (int i = 0; i < 3; ++i) tenants.remember(a, 400);
  CHECK(tenants.typical(a) == 0);  // three answers say nothing
  tenants.remember(a, 400);
  CHECK(tenants.typical(a) == doctest::Approx(400).epsilon(0.01));
  tenants.remember(a, 0);
  CHECK(tenants.typical(a) == doctest::Approx(400).epsilon(0.01));
  CHECK(tenants.typical(same_place) == 0);
  tenants.remember(a, 400);
  tenants.remember(same_place, 20);
  CHECK(tenants.typical(a) == doctest::Approx(400).epsilon(0.01));
  for (int i = 0; i < 60; ++i) tenants.remember(a, 30);
  CHECK(tenants.typical(a) < 35);
  for (int i = 0; i < 30; ++i) tenants.remember(same_place, 20);
  CHECK(tenants.typical(same_place) > 18);
  CHECK(tenants.typical(a) == 0);
  tenants.remember(0, 20);
  CHECK(tenants.typical(0) == 0);
}

TEST_CASE("prices fall from any cost to the cheapest as the load rises") {
  price_book prices{0.5, 1min};
  const auto now = at(100);
  constexpr double plenty = 1e9;  // of what can be done
  CHECK(std::isinf(prices.limit(1, plenty, now)));
  std::mt19937_64 random{3};
  for (int i = 0; i < 5000; ++i)
    prices.observe(std::exp2(static_cast<double>(random() % 100) / 10), now);  // 1 … 1024
  CHECK(std::isinf(prices.limit(0.5, plenty, now)));
  double before = prices.limit(0.51, plenty, now);
  CHECK(before > 500);
  for (const double load : {0.6, 0.7, 0.8, 0.9, 1.0}) {
    CHECK(prices.limit(load, plenty, now) < before);
    before = prices.limit(load, plenty, now);
  }
  CHECK(before > 1);
  CHECK(before < 8);
  CHECK(prices.limit(7, plenty, now) == before);
}

TEST_CASE("prices rise earlier where more is asked for than can be done, and later again when that is over") {
  price_book prices{0.8, 1min};
  for (int i = 0; i < 2400; ++i) prices.observe(1 + i % 10, at(100 + i * 0.1));  // 55 a second
  const auto now = at(340);
  CHECK(std::isinf(prices.limit(0.8, 60, now)));
  CHECK(prices.limit(0.81, 60, now) > 8);
  // Half of it can be done: from 0.4 on.
  CHECK(std::isinf(prices.limit(0.35, 27.5, now)));
  CHECK(prices.limit(0.5, 27.5, now) < prices.limit(0.81, 60, now));
  CHECK(prices.limit(1, 27.5, now) == prices.limit(1, 60, now));
  CHECK(std::isinf(prices.limit(0.8, 27.5, at(640))));
}

TEST_CASE("margins grow with errors that matter, and shrink when they are gone") {
  ttft_margin ttft{0.95};
  CHECK(ttft.factor() == 1);
  for (int i = 0; i < 500; ++i) ttft.observe(1ms, 1s, 30s);  // far below the SLO: says nothing
  CHECK(ttft.factor() == 1);
  for (int i = 0; i < 500; ++i) ttft.observe(20s, 26s, 30s);
  CHECK(ttft.factor() == doctest::Approx(1.3).epsilon(0.05));
  for (int i = 0; i < 5000; ++i) ttft.observe(20s, 18s, 30s);
  CHECK(ttft.factor() == 1);

  tbt_margin tbt;
  for (int i = 0; i < 500; ++i) tbt.observe(20ms, 40ms, 100ms);  // far below the SLO: says nothing
  CHECK(tbt.factor() == doctest::Approx(1.05).epsilon(0.01));
  for (int i = 0; i < 500; ++i) tbt.observe(80ms, 100ms, 100ms);
  CHECK(tbt.factor() == doctest::Approx(1.25).epsilon(0.05));
  for (int i = 0; i < 10'000; ++i) tbt.observe(80ms, 70ms, 100ms);
  CHECK(tbt.factor() == 1);
}

TEST_CASE("a rate of work is right from the first minute on, and forgets") {
  work_rate rate{1min};
  CHECK(rate.at(at(50)) == 0);
  for (int i = 0; i < 100; ++i) rate.add(0.5, at(100 + i * 0.25));
  CHECK(rate.at(at(125)) == doctest::Approx(2).epsilon(0.1));
  CHECK(rate.at(at(1000)) < 0.01);
}
