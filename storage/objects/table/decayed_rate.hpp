#pragma once
// How often something happened lately.

#include <cmath>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Events a second of late: an event counts half as much after `half_life_s`.
/// @thread  not synchronised. Time comes in and never goes back. @cost O(1), 16 bytes
class decayed_rate {
 public:
  static constexpr double half_life_s = 10;
  static constexpr double one_per_s = 0.6931471805599453 / half_life_s;  ///< weight of an event when it
                                                                         ///< happens

  void note(time_point now, double events = 1) {
    sum_ = static_cast<float>(left(now) + events);
    at_ = now;
  }
  double per_s(time_point now) const { return left(now) * one_per_s; }

 private:
  double left(time_point now) const {
    if (sum_ == 0) return 0;
    return sum_ * std::exp2(-std::chrono::duration<double>(now - at_).count() / half_life_s);
  }

  time_point at_{};
  float sum_ = 0;
};

}  // namespace mooncaf
