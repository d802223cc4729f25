#include "storage/objects/table/reuse_odds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mooncaf {

namespace {
constexpr std::uint32_t period = 2048;  // objects given up between two updates of the odds
constexpr float fading = 0.8f;          // earlier counts weigh so much after an update
}  // namespace

// Until something is known the oldest objects go first.
reuse_odds::reuse_odds() {
  for (auto& kind : odds_)
    for (std::size_t k = 0; k < buckets; ++k) kind[k] = static_cast<float>(1 / (begin_of(k) + 1));
}

std::size_t reuse_odds::bucket(std::uint64_t age) noexcept {
  if (age < 4) return age;
  const auto high = static_cast<unsigned>(std::bit_width(age)) - 1;  // 2 or more
  return std::min<std::size_t>(4 * (high - 1) + ((age >> (high - 2)) & 3), buckets - 1);
}

double reuse_odds::begin_of(std::size_t b) noexcept {
  if (b < 4) return static_cast<double>(b);
  return std::ldexp(static_cast<double>(4 + b % 4), static_cast<int>(b / 4) - 1);
}

void reuse_odds::learn_in_time() noexcept {
  if (++since_ < period) return;
  since_ = 0;
  learn();
}

void reuse_odds::learn() noexcept {
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    auto& h = histories_[kind];
    std::array<double, buckets + 1> back{}, seen{};  // objects that came back, and all, at this age or later
    for (std::size_t k = buckets; k-- > 0;) {
      back[k] = back[k + 1] + static_cast<double>(h.back[k]);
      seen[k] = seen[k + 1] + static_cast<double>(h.back[k]) + static_cast<double>(h.lost[k]);
    }
    if (seen[0] < 16) continue;
    for (std::size_t k = 0; k < buckets; ++k) {
      // Half of a bucket counts, since an age lies in its middle on average. Few observations count with some
      // doubt.
      double best = 0;
      for (auto end = k + 1; end <= buckets; ++end) {
        const auto wanted = back[k] - back[end] - static_cast<double>(h.back[k]) / 2;
        best = std::max(best, (wanted + 0.02) / (begin_of(end) - begin_of(k)));
      }
      odds_[kind][k] = static_cast<float>(best / (seen[k] + 1));
    }
    for (std::size_t k = 0; k < buckets; ++k) {
      h.back[k] *= fading;
      h.lost[k] *= fading;
    }
  }
}

}  // namespace mooncaf
