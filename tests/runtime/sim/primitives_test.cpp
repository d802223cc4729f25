#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/sim/event_queue.hpp"
#include "runtime/sim/log_histogram.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/step_history.hpp"
#include "runtime/sim/timeline.hpp"

using namespace mooncaf::sim;

TEST_CASE("events come in the order of their times, and of equal times in the order of their making") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_source random{seed};
    event_queue queue;
    ticks latest = 0;
    std::uint64_t order = 0;
    for (int i = 0; i < 2000; ++i) {
      if (random.uniform() < 0.6 || queue.empty()) {
        queue.push(latest + static_cast<ticks>(random.below(50)), event_kind::sample, 0);
        continue;
      }
      const auto e = queue.pop();
      INFO("seed ", seed);
      REQUIRE((e.at > latest || (e.at == latest && e.order > order) || order == 0 || e.at >= latest));
      if (e.at == latest) REQUIRE(e.order > order);
      if (e.at != latest) order = 0;
      latest = e.at;
      order = e.order;
    }
  }
}

TEST_CASE("quantiles of a histogram are within its resolution of the exact ones") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_source random{seed};
    log_histogram h;
    std::vector<double> values;
    for (int i = 0; i < 5000; ++i) {
      values.push_back(std::exp(2 * random.normal()));
      h.add(values.back());
    }
    std::ranges::sort(values);
    for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
      const auto exact = values[static_cast<std::size_t>(std::max(q * 5000 - 1, 0.0))];
      INFO("seed ", seed, " quantile ", q);
      CHECK(h.quantile(q) == doctest::Approx(exact).epsilon(0.017));
    }
    CHECK(h.share_up_to(h.max()) == 1);
  }
}

TEST_CASE("the slowest tenth of a request's gaps, and their p90, are those of a list of all of them") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    random_source random{seed};
    step_history history;
    std::vector<double> steps;
    while (steps.size() < 400) {
      const step_run run{static_cast<std::int64_t>(steps.size()), 0.02 + 0.1 * random.uniform(),
                         seed % 2 == 0 ? 0 : 0.003 * random.uniform()};
      history.begin(run, 0);
      const auto n = 1 + random.below(30);
      for (std::uint64_t i = 0; i < n; ++i)
        steps.push_back(run.seconds + static_cast<double>(i) * run.growth);
    }
    for (int i = 0; i < 20; ++i) {
      const auto from = static_cast<std::int64_t>(random.below(300));
      const auto to = from + 1 + static_cast<std::int64_t>(random.below(99));
      const double wait = random.uniform() < 0.5 ? 0 : random.uniform();
      std::vector<double> gaps(steps.begin() + from, steps.begin() + to);
      gaps[0] += wait;
      for (auto& g : gaps) g = whole_us(g);
      std::ranges::sort(gaps, std::greater{});
      const auto wanted = std::min(gaps.size(), std::max<std::size_t>((gaps.size() + 9) / 10, 10));
      double sum = 0;
      for (std::size_t g = 0; g < wanted; ++g) sum += gaps[g];
      INFO("seed ", seed, " steps ", from, " to ", to);
      CHECK(history.tbt(from, to, wait, tbt_metric::slowest_tenth) ==
            doctest::Approx(sum / static_cast<double>(wanted)));
      CHECK(history.tbt(from, to, wait, tbt_metric::p90) == doctest::Approx(gaps[gaps.size() / 10]));
    }
  }
}

TEST_CASE("a timeline keeps a bounded number of rows and loses no rejection") {
  timeline t;
  for (int i = 0; i < 5000; ++i) {
    timeline_row row;
    row.at = i;
    row.rejected = 1;
    t.add(row);
    REQUIRE(t.rows().size() <= timeline::most);
  }
  double sum = 0;
  for (const auto& r : t.rows()) sum += r.rejected;
  CHECK(sum == 5000);
  CHECK(std::ranges::is_sorted(t.rows(), {}, &timeline_row::at));
}
