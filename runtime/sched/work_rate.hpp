#pragma once
// How much work of one kind comes in per second, of late.

#include <algorithm>
#include <cmath>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Work per second, in any unit, averaged over about `memory`.
/// @thread  Owned by one thread; not synchronised.
class work_rate {
 public:
  explicit work_rate(duration memory) noexcept : memory_(to_seconds(memory)) {}

  void add(double work, time_point now) noexcept {
    if (sum_ == 0) first_ = last_ = now;
    fade(now);
    sum_ += work;
  }
  double at(time_point now) const noexcept {
    // Over the time that has been seen, at first: less than `memory_`, but not so little that one request
    // decides.
    const double seen = std::max(1 - std::exp(-to_seconds(now - first_) / memory_), 0.1);
    return sum_ * std::exp(-to_seconds(std::max(now - last_, duration{})) / memory_) / (memory_ * seen);
  }

 private:
  void fade(time_point now) noexcept {
    if (now <= last_) return;
    sum_ *= std::exp(-to_seconds(now - last_) / memory_);
    last_ = now;
  }
  double memory_;  // seconds
  double sum_ = 0;
  time_point first_{}, last_{};
};

}  // namespace mooncaf
