#pragma once
// So many a minute, with bursts: a token bucket.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Starts full, holds one minute's worth. Time is passed in and must not go back. @thread Not synchronised.
class rate_limit {
 public:
  /// @param per_minute  0: no limit.
  explicit rate_limit(std::uint32_t per_minute) : per_minute_(per_minute), left_(per_minute) {}

  /// Takes `count`, or nothing. @returns zero if taken, else how long until it could be; more than a minute's
  /// worth is never to be had.
  duration take(time_point now, std::uint32_t count) {
    if (per_minute_ == 0) return duration::zero();
    const double rate = per_minute_ / 60.0;  // a second
    if (last_ != time_point{}) left_ = std::min<double>(per_minute_, left_ + rate * to_seconds(now - last_));
    last_ = now;
    if (left_ + 1e-9 >= count) {
      left_ -= count;
      return duration::zero();
    }
    return std::chrono::ceil<duration>(std::chrono::duration<double>((count - left_) / rate));
  }

 private:
  std::uint32_t per_minute_;
  double left_;
  time_point last_{};
};

}  // namespace mooncaf
