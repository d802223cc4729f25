#include "runtime/model/sampler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "gpu/host/vocab_ops.hpp"

using namespace mooncaf;

namespace {

std::vector<float> random_logits(std::size_t n, std::uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (auto& l : logits) l = normal(random);
  return logits;
}

std::int32_t pick_one(const sampling_params& p, std::vector<float> logits) {
  sampler s(p, {}, {}, logits.size());
  return s.next(logits).id;
}

/// The set of tokens that may be drawn, by the book: sort, min-p, top-k, top-p on renormalised probabilities.
std::set<std::int32_t> support_by_sorting(const sampling_params& p, const std::vector<float>& logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t i) { return logits[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return at(a) > at(b); });
  const double best = static_cast<double>(at(order[0]));
  const auto weight = [&](std::int32_t i) {
    return std::exp((static_cast<double>(at(i)) - best) / static_cast<double>(p.temperature));
  };
  std::erase_if(order, [&](auto i) { return weight(i) < static_cast<double>(p.min_p); });
  if (p.top_k > 0 && order.size() > static_cast<std::size_t>(p.top_k))
    order.resize(static_cast<std::size_t>(p.top_k));
  double total = 0, mass = 0;
  for (const auto i : order) total += weight(i);
  std::set<std::int32_t> kept;
  for (const auto i : order) {
    kept.insert(i);
    mass += weight(i);
    if (mass >= static_cast<double>(p.top_p) * total) break;
  }
  return kept;
}

}  // namespace

TEST_CASE("greedy takes the largest logit, and of equals the lowest id") {
  sampling_params p;
  p.temperature = 0;
  CHECK(pick_one(p, {1, 5, 3, 5, 2}) == 1);
  CHECK(pick_one(p, {-3, -2, -2}) == 1);
  CHECK(pick_one(p, {std::numeric_limits<float>::quiet_NaN(), 1, 2}) == 2);
  const auto logits = random_logits(49152, 5);
  CHECK(pick_one(p, logits) == std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_CASE("damaged logits give a valid id") {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto inf = std::numeric_limits<float>::infinity();
  for (const float temperature : {0.0f, 1.0f})
    for (const auto& logits :
         {std::vector<float>{nan, nan}, {-inf, -inf}, {inf, inf}, {nan, inf}, {-inf, 3}}) {
      sampling_params p;
      p.temperature = temperature;
      p.top_p = 0.9f;
      p.logprobs = 1;
      const auto id = pick_one(p, logits);
      CHECK(id >= 0);
      CHECK(id < 2);
    }
}

TEST_CASE("logit bias and penalties act as in vLLM") {
  sampling_params p;
  p.temperature = 0;
  SUBCASE("bias") {
    p.logit_bias = {{2, 100.0f}, {7, 100.0f}, {-1, 100.0f}};
    CHECK(pick_one(p, {1, 2, 0, -1}) == 2);
  }
  SUBCASE("repetition divides positive and multiplies negative logits, prompt included") {
    p.repetition_penalty = 2;
    const std::vector<std::int32_t> prompt{0, 0};
    sampler s(p, prompt, {}, 3);
    std::vector<float> logits{4, 2.5f, 0};
    CHECK(s.next(logits).id == 1);
    CHECK(logits[0] == 2);
    s.accept(1);
    logits = {-1, -1.5f, -2.5f};
    CHECK(s.next(logits).id == 0);
    CHECK(logits == std::vector<float>{-2, -3, -2.5f});
  }
  SUBCASE("frequency counts, presence does not, and neither sees the prompt") {
    p.frequency_penalty = 0.5f;
    p.presence_penalty = 1;
    const std::vector<std::int32_t> prompt{2}, generated{0, 1, 1};
    sampler s(p, prompt, {}, 3, generated);
    std::vector<float> logits{0, 0, 0};
    CHECK(s.next(logits).id == 2);
    CHECK(logits == std::vector<float>{-1.5f, -2, 0});
  }
  SUBCASE("many distinct tokens") {
    p.presence_penalty = 1;
    p.max_tokens = 1;
    sampler s(p, {}, {}, 5000);
    for (int i = 0; i < 4999; ++i) s.accept(i);
    std::vector<float> logits(5000, 0.5f);
    CHECK(s.next(logits).id == 4999);
  }
}

TEST_CASE("end tokens cannot be chosen before min_tokens") {
  sampling_params p;
  p.temperature = 0;
  p.min_tokens = 1;
  p.stop_token_ids = {1};
  const std::vector<std::int32_t> eos{0};
  sampler s(p, {}, eos, 3);
  std::vector<float> logits{9, 8, 7};
  CHECK(s.next(logits).id == 2);
  s.accept(2);
  logits = {9, 8, 7};
  CHECK(s.next(logits).id == 0);
}

TEST_CASE("a request ends for the reason its parameters give") {
  sampling_params p;
  p.max_tokens = 5;
  p.min_tokens = 2;
  p.stop_token_ids = {8};
  const std::vector<std::int32_t> eos{9};
  CHECK(finish_after(p, eos, 1, 9) == finish_reason::none);
  CHECK(finish_after(p, eos, 2, 9) == finish_reason::stop);
  CHECK(finish_after(p, eos, 3, 8) == finish_reason::stop);
  CHECK(finish_after(p, eos, 4, 1) == finish_reason::none);
  CHECK(finish_after(p, eos, 5, 1) == finish_reason::length);
  CHECK(finish_after(p, eos, 5, 9) == finish_reason::stop);
  p.ignore_eos = true;
  CHECK(finish_after(p, eos, 3, 9) == finish_reason::none);
}

TEST_CASE("exactly the tokens that sorting would keep are ever drawn") {
  struct {
    float temperature, top_p, min_p;
    std::int32_t top_k;
  } const cases[] = {{1, 1, 0, 5},     {1, 0.5f, 0, 0},      {1, 0.9f, 0, 0},     {0.7f, 0.95f, 0, 40},
                     {2, 0.8f, 0, 0},  {1, 1, 0.1f, 0},      {1, 0.9f, 0.05f, 0}, {1.5f, 0.9f, 0.02f, 7},
                     {1, 0.01f, 0, 0}, {0.2f, 0.99f, 0, -1}, {1, 1, 1, 0},        {1, 1, 0, 1}};
  for (const auto& c : cases) {
    for (const std::size_t vocab : {3u, 300u, 2000u}) {
      const auto logits = random_logits(vocab, 11 + static_cast<std::uint32_t>(vocab));
      sampling_params p;
      p.temperature = c.temperature, p.top_p = c.top_p, p.min_p = c.min_p, p.top_k = c.top_k;
      const auto expected = support_by_sorting(p, logits);
      std::set<std::int32_t> drawn;
      sampler s(p, {}, {}, vocab);
      for (int i = 0; i < 4000; ++i) {
        auto copy = logits;
        drawn.insert(s.next(copy).id);
        s.accept(0);
      }
      CAPTURE(c.top_k);
      CAPTURE(c.top_p);
      CAPTURE(c.min_p);
      CAPTURE(vocab);
      CHECK(std::includes(expected.begin(), expected.end(), drawn.begin(), drawn.end()));
      if (expected.size() <= 8) CHECK(drawn.size() == expected.size());
    }
  }
}

TEST_CASE("draws follow the softmax") {
  const std::vector<float> logits{1.0f, 0.0f, 2.0f, -1.0f, 0.5f};
  sampling_params p;
  p.temperature = 0.8f;
  p.seed = 42;
  std::vector<double> expected(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    total += expected[i] = std::exp(static_cast<double>(logits[i]) / 0.8);
  std::vector<int> counts(logits.size());
  sampler s(p, {}, {}, logits.size());
  constexpr int draws = 100000;
  for (int i = 0; i < draws; ++i) {
    auto copy = logits;
    ++counts[static_cast<std::size_t>(s.next(copy).id)];
    s.accept(0);
  }
  double chi_square = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double e = expected[i] / total * draws;
    chi_square += (counts[i] - e) * (counts[i] - e) / e;
  }
  CHECK(chi_square < 18.5);  // 4 degrees of freedom, p = 0.001
}

TEST_CASE("uniform draws are uniform over positions and differ between seeds") {
  std::vector<int> bins(16);
  for (std::uint64_t i = 0; i < 64000; ++i) {
    const double u = uniform_draw(7, i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    ++bins[static_cast<std::size_t>(u * 16)];
  }
  double chi_square = 0;
  for (const int n : bins) chi_square += (n - 4000.0) * (n - 4000.0) / 4000;
  CHECK(chi_square < 37.7);  // 15 degrees of freedom, p = 0.001
  CHECK(uniform_draw(7, 3) == uniform_draw(7, 3));
  CHECK(uniform_draw(7, 3) != uniform_draw(8, 3));
}

TEST_CASE("a request that moves in mid-stream goes on with the same tokens") {
  constexpr std::size_t vocab = 1000;
  sampling_params p;
  p.seed = 99;
  p.temperature = 0.9f;
  p.top_p = 0.9f;
  p.repetition_penalty = 1.2f;
  p.frequency_penalty = 0.3f;
  p.max_tokens = 64;
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const auto logits_at = [](std::uint32_t position) { return random_logits(vocab, 1000 + position); };
  std::vector<std::int32_t> tokens;
  sampler whole(p, prompt, {}, vocab);
  for (std::uint32_t i = 0; i < 30; ++i) {
    auto logits = logits_at(i);
    tokens.push_back(whole.next(logits).id);
    whole.accept(tokens.back());
  }
  for (const std::size_t moved_at : {1u, 7u, 29u}) {
    sampler other(p, prompt, {}, vocab, std::span(tokens).first(moved_at));
    CHECK(other.position() == moved_at);
    for (auto i = moved_at; i < tokens.size(); ++i) {
      auto logits = logits_at(static_cast<std::uint32_t>(i));
      CHECK(other.next(logits).id == tokens[i]);
      other.accept(tokens[i]);
    }
  }
}

TEST_CASE("log-probabilities come from the raw logits") {
  auto logits = random_logits(5000, 3);
  const auto raw = logits;
  double sum = 0;
  for (const float l : raw) sum += std::exp(static_cast<double>(l));
  sampling_params p;
  p.temperature = 0.5f;
  p.logit_bias = {{17, 50.0f}};
  p.logprobs = 5;
  sampler s(p, {}, {}, raw.size());
  const auto token = s.next(logits);
  CHECK(token.id == 17);
  CHECK(token.logprob == doctest::Approx(static_cast<double>(raw[17]) - std::log(sum)).epsilon(1e-5));
  REQUIRE(token.top.size() == 5);
  auto sorted = raw;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(raw[static_cast<std::size_t>(token.top[i].first)] == sorted[i]);
    CHECK(token.top[i].second ==
          doctest::Approx(static_cast<double>(sorted[i]) - std::log(sum)).epsilon(1e-5));
  }
  p.logprobs = 0;
  sampler none(p, {}, {}, raw.size());
  logits = raw;
  CHECK(none.next(logits).top.empty());
}

TEST_CASE("tokens outside a set are lowered, and no others, whatever the vocabulary's size") {
  std::mt19937_64 random(5);
  for (const std::size_t size : {1, 31, 32, 33, 64, 100, 1000, 49152}) {
    for (int density = 0; density < 4; ++density) {
      std::vector<std::uint64_t> kept(size / 64);  // the last tokens may have no word
      for (auto& word : kept) {
        word = density == 0 ? 0 : density == 1 ? ~std::uint64_t{0} : random();
        if (density == 3) word &= random() & random();
      }
      std::vector<float> logits(size);
      for (auto& v : logits) v = static_cast<float>(random() % 2000) - 1000;
      logits[size / 2] = std::numeric_limits<float>::quiet_NaN();
      for (const float most : {-std::numeric_limits<float>::infinity(), 10.0f}) {
        auto lowered = logits;
        lower_others(lowered, kept, most);
        for (std::size_t i = 0; i < size; ++i) {
          const bool keep = i / 64 < kept.size() && (kept[i / 64] >> (i % 64) & 1) != 0;
          const float expected = keep ? logits[i] : logits[i] < most ? logits[i] : most;
          REQUIRE((lowered[i] == expected || (std::isnan(lowered[i]) && std::isnan(expected))));
        }
      }
    }
  }
}

TEST_CASE("what a device is told to choose is what the host chooses") {
  constexpr std::size_t vocab = 600;
  std::mt19937 random(77);
  const auto below = [&](std::uint32_t n) { return random() % n; };
  const std::vector<std::int32_t> prompt{1, 2, 3, 500}, eos{7};
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    sampling_params p;
    p.temperature = below(4) == 0 ? 0 : 0.9f;
    p.top_k = below(2) == 0 ? 20 : 0;
    p.top_p = below(2) == 0 ? 0.8f : 1;
    p.min_p = below(3) == 0 ? 0.05f : 0;
    p.repetition_penalty = below(2) == 0 ? 1.3f : 1;
    p.frequency_penalty = below(2) == 0 ? 0.4f : 0;
    p.presence_penalty = below(2) == 0 ? -0.3f : 0;
    p.min_tokens = below(6);
    p.stop_token_ids = {7, 9};
    p.logit_bias = {{4, 1.5f}, {1, -2.0f}, {4, 0.7f}, {7, 4.0f}};
    p.bad_words = {{3}, {5, 6}};
    p.logprobs = static_cast<std::int32_t>(below(4)) - 1;
    p.seed = random();
    sampler s(p, prompt, eos, vocab);
    for (std::uint32_t i = 0; i < 8; ++i) {
      auto logits = random_logits(vocab, random(), 4);
      const auto* how = s.choice();
      REQUIRE(how != nullptr);
      auto there = logits;
      const auto chosen = choose_token(there, *how);
      const auto got = s.described(chosen), want = s.next(logits);
      CHECK(got.id == want.id);
      CHECK(got.logprob == want.logprob);
      CHECK(got.top == want.top);
      s.accept(want.id);
      if (i == 3) s.accept(5);  // a bad word begins
    }
  }
}

TEST_CASE("what devices do not take stays with the host") {
  const std::vector<std::int32_t> eos{7};
  sampling_params p;
  CHECK(sampler(p, {}, eos, 100).choice() != nullptr);
  CHECK(sampler(p, {}, eos, largest_vocabulary + 1).choice() == nullptr);
  p.logprobs = static_cast<std::int32_t>(most_alternatives) + 1;
  CHECK(sampler(p, {}, eos, 100).choice() == nullptr);
  p.logprobs = -1;
  p.allowed_token_ids = {1, 2};
  CHECK(sampler(p, {}, eos, 100).choice() == nullptr);
}
