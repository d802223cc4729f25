#pragma once
// Seeded randomness that gives the same numbers with every standard library.

#include <cmath>
#include <cstdint>
#include <numbers>

namespace mooncaf::sim {

/// SplitMix64: one state word, good enough for workloads and noise.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 0x6A09E667F3BCC909ull) {}

  std::uint64_t bits() noexcept {
    auto z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  /// In [0, 1).
  double uniform() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// In [0, n), n at least 1.
  std::uint64_t below(std::uint64_t n) noexcept {
    return static_cast<std::uint64_t>(uniform() * static_cast<double>(n));
  }
  double exponential(double mean) noexcept { return -mean * std::log1p(-uniform()); }
  double normal() noexcept {
    const double r = std::sqrt(-2 * std::log1p(-uniform()));
    return r * std::cos(2 * std::numbers::pi * uniform());
  }
  /// A factor around 1 with relative standard deviation `jitter`, mean 1, never negative.
  double noise(double jitter) noexcept {
    return jitter <= 0 ? 1 : std::exp(jitter * normal() - jitter * jitter / 2);
  }

 private:
  std::uint64_t state_;
};

}  // namespace mooncaf::sim
