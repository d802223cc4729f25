// Time to choose one token, beside the floor (one pass over the logits) and the plain way (sorting the
// vocabulary).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/sampler.hpp"

using namespace mooncaf;

namespace {

/// Median microseconds of 41 runs.
double median_us(const std::function<void()>& prepare, const std::function<void()>& work) {
  std::vector<double> us;
  for (int i = 0; i < 41; ++i) {
    prepare();
    const auto begin = std::chrono::steady_clock::now();
    work();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(us.begin(), us.begin() + 20, us.end());
  return us[20];
}

struct setting {
  const char* name;
  sampling_params params;
};

std::vector<setting> settings() {
  std::vector<setting> all(6);
  all[0].name = "greedy";
  all[0].params.temperature = 0;
  all[1].name = "temperature 0.8";
  all[1].params.temperature = 0.8f;
  all[2].name = "top-k 50, top-p 0.9";
  all[2].params.top_k = 50;
  all[2].params.top_p = 0.9f;
  all[3].name = "top-p 0.95";
  all[3].params.top_p = 0.95f;
  all[4].name = "min-p 0.05, penalties";
  all[4].params.min_p = 0.05f;
  all[4].params.repetition_penalty = 1.1f;
  all[4].params.frequency_penalty = 0.1f;
  all[5].name = "top-p 0.95, 5 logprobs";
  all[5].params.top_p = 0.95f;
  all[5].params.logprobs = 5;
  return all;
}

void measure(std::size_t vocab, float spread) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> source(vocab), logits(vocab);
  for (auto& l : source) l = normal(random);
  std::vector<std::int32_t> prompt(2000);
  for (auto& id : prompt) id = static_cast<std::int32_t>(random() % vocab);
  const auto refill = [&] { logits = source; };

  volatile float sink = 0;
  const double floor_us = median_us(refill, [&] { sink = *std::max_element(logits.begin(), logits.end()); });
  std::vector<std::int32_t> order(vocab);
  const double sort_us = median_us(refill, [&] {
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
  });
  std::printf("vocabulary %zu, logits of spread %.1f: std::max_element %.0f us, full sort %.0f us\n", vocab,
              static_cast<double>(spread), floor_us, sort_us);
  for (const auto& s : settings()) {
    sampler chooser(s.params, prompt, {}, vocab);
    const double us = median_us(refill, [&] { chooser.accept(chooser.next(logits).id); });
    std::printf("  %-24s %7.0f us   %5.1f x max_element, %6.4f x sort\n", s.name, us, us / floor_us,
                us / sort_us);
  }
}

}  // namespace

int main() {
  for (const std::size_t vocab : {49152u, 151936u})
    for (const float spread : {1.0f, 3.0f}) measure(vocab, spread);
}
