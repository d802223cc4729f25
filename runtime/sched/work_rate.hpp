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
  void add(double work, time_point now) noexcept {
    if (sum_ == 0) first_ = last_ = now;
    fade(now);
    sum_ += work;
  }
  double at(time_point now) const noexcept {
    // Over the time that has been seen, at first: less than `memory`, but not so little that one request
    // decides.
    const double seen = std::max(1 - std::exp(-to_seconds(now - first_) / memory), 0.1);
    return sum_ * std::exp(-to_seconds(std::max(now - last_, duration{})) / memory) / (memory * seen);
  }

 private:
  static constexpr double memory = 60;  // seconds
  void fade(time_point now) noexcept {
    if (now <= last_) return;
    sum_ *= std::exp(-to_seconds(now - last_) / memory);
    last_ = now;
  }
  double sum_ = 0;
  time_point first_{}, last_{};
};

}  // namespace mooncaf
