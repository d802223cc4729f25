#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/sched/decode_survival.hpp"
#include "runtime/sched/learned_margin.hpp"
#include "runtime/sched/price_book.hpp"
#include "runtime/sched/work_rate.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr time_point at(double seconds) { return time_point{from_seconds(seconds)}; }

}  // namespace

TEST_CASE("until enough requests have ended, all are taken to decode for the configured span") {
  decode_survival s{20s};
  s.add(at(10), 1000);
  s.add(at(12), 3000);
  const auto soon = s.at(at(25), at(12));
  CHECK(soon.requests == doctest::Approx(2));
  CHECK(soon.context_tokens == doctest::Approx(4000));
  CHECK(s.at(at(31), at(12)).requests == doctest::Approx(1));
  s.remove(at(10), 1000);
  s.remove(at(12), 3000);
  CHECK(s.at(at(25), at(12)).requests == 0);
}

TEST_CASE("the expected decode load follows what decode times have been, by length of prompt") {
  decode_survival s{20s};
  // Short prompts: half of them decode for 2 s, half for 40 s. Long ones: all for 10 s.
  for (int i = 0; i < 2000; ++i) {
    s.observe(at(0), 1000, at(i % 2 == 0 ? 2 : 40));
    s.observe(at(0), 50'000, at(10));
  }
  for (int i = 0; i < 100; ++i) s.add(at(100), 1000);
  CHECK(s.at(at(101), at(100)).requests == doctest::Approx(100).epsilon(0.05));
  CHECK(s.at(at(105), at(100)).requests == doctest::Approx(50).epsilon(0.05));
  CHECK(s.at(at(160), at(100)).requests == doctest::Approx(0));
  // Who is still there after 5 s is of the long-lasting half.
  CHECK(s.at(at(120), at(106)).requests == doctest::Approx(100).epsilon(0.05));
  for (int i = 0; i < 100; ++i) s.remove(at(100), 1000);
  for (int i = 0; i < 100; ++i) s.add(at(100), 50'000);
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
      s.trim(at(now));
      if (open.empty() || random() % 2 == 0) {
        open.emplace_back(at(now + static_cast<double>(random() % 400) * 0.1), 1 + random() % 100'000);
        s.add(open.back().first, open.back().second);
      } else {
        const auto which = random() % open.size();
        s.remove(open[which].first, open[which].second);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
      }
      const auto load = s.at(at(now + 3), at(now));
      INFO("seed ", seed, " step ", i);
      REQUIRE(load.requests >= 0);
      REQUIRE(load.requests <= static_cast<double>(open.size()) + 1e-9);
    }
    for (const auto& [when, tokens] : open) s.remove(when, tokens);
    CHECK(s.at(at(now + 100), at(now)).requests == 0);
    CHECK(s.at(at(now + 100), at(now)).context_tokens == 0);
  }
}

TEST_CASE("prices fall from any cost to the cheapest as the load rises") {
  price_book prices{0.5};
  CHECK(std::isinf(prices.limit(1)));
  std::mt19937_64 random{3};
  for (int i = 0; i < 5000; ++i)
    prices.observe(std::exp2(static_cast<double>(random() % 100) / 10));  // 1 … 1024
  CHECK(std::isinf(prices.limit(0.5)));
  double before = prices.limit(0.51);
  CHECK(before > 500);
  for (const double load : {0.6, 0.7, 0.8, 0.9, 1.0}) {
    CHECK(prices.limit(load) < before);
    before = prices.limit(load);
  }
  CHECK(before > 1);
  CHECK(before < 8);
  CHECK(prices.limit(7) == before);
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
  for (int i = 0; i < 100; ++i) tbt.observe(99ms, 100ms);
  CHECK(tbt.factor() > 1.5);
  for (int i = 0; i < 10'000; ++i) tbt.observe(50ms, 100ms);
  CHECK(tbt.factor() == 1);
}

TEST_CASE("a rate of work is right from the first minute on, and forgets") {
  work_rate rate;
  CHECK(rate.at(at(50)) == 0);
  for (int i = 0; i < 100; ++i) rate.add(500ms, at(100 + i * 0.25));
  CHECK(rate.at(at(125)) == doctest::Approx(2).epsilon(0.1));
  CHECK(rate.at(at(1000)) < 0.01);
}
