#pragma once
// When a rail that failed may be tried again.

#include <algorithm>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Exponential back-off of one rail to one peer. @thread  not synchronised
class rail_health {
 public:
  rail_health(duration first, duration max) : first_(first), max_(max) {}

  bool may_try(time_point now) const noexcept { return now >= retry_at_; }
  time_point retry_at() const noexcept { return retry_at_; }
  unsigned failures_in_a_row() const noexcept { return failures_; }

  void failed(time_point now) noexcept {
    const auto shift = std::min(failures_, 20u);
    ++failures_;
    retry_at_ = now + std::min(max_, first_ * (std::int64_t{1} << shift));
  }
  /// It moved bytes: earlier failures do not count any more.
  void worked() noexcept { failures_ = 0; }
  /// The port came back: no reason to wait.
  void forgive() noexcept { retry_at_ = {}; }

 private:
  duration first_;
  duration max_;
  unsigned failures_ = 0;
  time_point retry_at_{};
};

}  // namespace mooncaf
