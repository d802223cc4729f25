#pragma once
// How long to wait before the next try.

#include <algorithm>
#include <cstdint>
#include <random>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Doubling waits with jitter, so that the nodes of a cluster do not dial a restarted conductor in step.
class backoff {
 public:
  backoff(duration first, duration longest, std::uint64_t seed)
      : first_(first), longest_(longest), random_(seed) {}

  /// The next wait: uniformly between half and all of first * 2^n, where n counts calls since `reset`, but at
  /// most `longest`.
  duration next() {
    const auto whole = std::min(longest_, first_ * (std::int64_t{1} << std::min(tries_, 20u)));
    tries_ = std::min(tries_ + 1, 20u);
    std::uniform_int_distribution<std::int64_t> pick(whole.count() / 2, whole.count());
    return duration{pick(random_)};
  }
  void reset() noexcept { tries_ = 0; }

 private:
  duration first_;
  duration longest_;
  std::mt19937_64 random_;
  unsigned tries_ = 0;
};

}  // namespace mooncaf
