// Every device chooses the same token from the same logits, to the last bit of chance (gpu/token_choice.hpp).

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/conformance/device_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

/// A choice with what it points to.
struct owned_choice {
  token_choice how;
  std::vector<logit_edit> edits;
  std::vector<candidate> top;
};

/// Outcomes of a device, the likeliest in order.
struct outcome {
  std::vector<chosen_token> tokens;
  std::vector<std::vector<candidate>> tops;
};

outcome choose(device& d, matrix logits, std::vector<owned_choice> choices) {
  device_world w(d);
  const auto rows = w.put(logits);
  std::vector<token_choice> how;
  for (auto& c : choices) {
    how.push_back(c.how);
    how.back().edits = c.edits;
    how.back().top = c.top;
  }
  outcome out;
  out.tokens.resize(how.size());
  {
    const device_turn turn(w.queue());
    w.queue().choose(rows, how, out.tokens);
    // What the spans hold was read.
    for (auto& c : choices) c.edits.clear();
    w.queue().synchronize();
  }
  for (auto& c : choices) {
    std::sort(c.top.begin(), c.top.end());
    out.tops.push_back(c.top);
  }
  return out;
}

void same_everywhere(const matrix& logits, const std::vector<owned_choice>& choices) {
  const auto want = choose(*reference(), logits, choices);
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto got = choose(*kind.make(), logits, choices);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      CAPTURE(i);
      const auto &a = got.tokens[i], &b = want.tokens[i];
      CHECK(a.id == b.id);
      if (!choices[i].how.describe) continue;
      CHECK((a.logit == b.logit || std::isnan(b.logit)));
      CHECK(a.peak == b.peak);
      CHECK(a.weights == b.weights);
      CHECK(std::ranges::equal(got.tops[i], want.tops[i], [](const candidate& x, const candidate& y) {
        return x.id == y.id && (x.id < 0 || x.value == y.value);
      }));
    }
  }
}

/// Any of the settings that requests have.
owned_choice random_choice(random_source& r, std::uint32_t row, std::uint32_t vocab) {
  owned_choice c;
  c.how.row = row;
  c.how.greedy = r.below(5) == 0;
  c.how.limits.temperature = r.uniform(0.05f, 2);
  if (r.below(3) == 0) c.how.limits.min_p = r.uniform(0, 0.3f);
  if (r.below(2) == 0) c.how.limits.top_k = static_cast<std::int32_t>(1 + r.below(vocab + 5));
  if (r.below(2) == 0) c.how.limits.top_p = r.uniform(0.01f, 1);
  c.how.u = static_cast<double>(r.uniform(0, 1));
  if (c.how.u >= 1) c.how.u = 0.5;
  for (std::uint32_t id = 0; id < vocab && r.below(2) == 0; id += 1 + r.below(3))
    c.edits.push_back({.id = static_cast<std::int32_t>(id),
                       .most = r.below(4) == 0 ? -1e30f : infinity,
                       .bias = r.below(2) == 0 ? r.uniform(-3, 3) : 0,
                       .repetition = r.uniform(0.5f, 2),
                       .frequency = r.uniform(-1, 1),
                       .presence = r.uniform(-1, 1)});
  c.how.describe = r.below(2) == 0;
  if (c.how.describe) c.top.resize(r.below(most_alternatives + 1));
  return c;
}

}  // namespace

TEST_CASE("tokens, their log-probabilities and alternatives are the same bits on every device") {
  random_source r(31);
  for (const std::uint32_t vocab : {1u, 37u, 2500u}) {
    CAPTURE(vocab);
    auto logits = matrix::random(r, 24, vocab, 3);
    for (auto& f : logits.values) f *= 12;
    // Ties, at the top and everywhere.
    for (std::size_t row = 0; row < 8; ++row)
      for (std::size_t i = 0; i < vocab; ++i)
        logits.view().row(row)[i] = std::round(logits.view().row(row)[i] / 4);
    std::vector<owned_choice> choices;
    for (std::uint32_t row = 0; row < 24; ++row) choices.push_back(random_choice(r, 23 - row, vocab));
    same_everywhere(logits, choices);
  }
}

TEST_CASE("logits that are no numbers, endless, or all kept out come to the same id on every device") {
  const std::vector<std::vector<float>> rows{{no_number, no_number, no_number, no_number},
                                             {-infinity, -infinity, -infinity, -infinity},
                                             {no_number, -infinity, no_number, -infinity},
                                             {1, infinity, infinity, no_number},
                                             {no_number, -2, -0.0f, 0.0f},
                                             {-1e30f, -1e30f, -1e30f, -1e30f},
                                             {3, -infinity, 3, no_number}};
  random_source r(32);
  for (const bool greedy : {true, false}) {
    matrix logits(rows.size(), 4);
    std::vector<owned_choice> choices;
    for (std::uint32_t row = 0; row < rows.size(); ++row) {
      std::ranges::copy(rows[row], logits.view().row(row));
      auto c = random_choice(r, row, 4);
      c.how.greedy = greedy;
      c.how.describe = true;
      c.top.resize(4);
      c.how.limits.top_k = 3;
      c.how.limits.top_p = 0.9f;
      c.edits.clear();
      choices.push_back(c);
    }
    same_everywhere(logits, choices);
  }
}

TEST_CASE("a draw's ends are the first and the last token that are left") {
  matrix logits(2, 300);
  std::ranges::fill(logits.values, 1.0f);
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    std::vector<owned_choice> choices(2);
    for (std::uint32_t row = 0; row < 2; ++row) {
      choices[row].how.row = row;
      choices[row].how.greedy = false;
      choices[row].how.limits.top_k = 40;
      choices[row].how.limits.top_p = 0.5f;
      choices[row].how.u = row == 0 ? 0 : 0x1.fffffffffffffp-1;
    }
    const auto got = choose(*kind.make(), logits, choices);
    CHECK(got.tokens[0].id == 0);
    CHECK(got.tokens[1].id == 19);
  }
}
