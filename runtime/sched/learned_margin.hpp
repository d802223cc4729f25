#pragma once
// How wrong predictions turn out to be, learnt while serving: admission keeps as much room free as that
// takes.

#include <algorithm>
#include <cmath>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// A quantile of a stream, by steps: up by the share above it, down by the share below, so that it stays
/// where the two balance. Follows a stream that changes.
class running_quantile {
 public:
  running_quantile(double share, double step, double begin) noexcept
      : share_(share), step_(step), value_(begin) {}
  void observe(double x) noexcept { value_ += step_ * (x > value_ ? share_ : share_ - 1); }
  double value() const noexcept { return value_; }

 private:
  double share_, step_, value_;
};

/// The wait before the own computation that a share of the requests stays below, as a multiple of the
/// prediction.
/// @thread  Owned by the conductor; not synchronised.
class ttft_margin {
 public:
  explicit ttft_margin(double share) noexcept : error_(share, 0.02, 0) {}

  /// Predictions far below the SLO decide nothing and are ignored: their errors are hand-overs and rounding.
  void observe(duration predicted, duration actual, duration slo) noexcept {
    if (predicted < slo / 6 || actual <= duration{}) return;
    error_.observe(std::log(to_seconds(actual) / to_seconds(predicted)));
  }
  double factor() const noexcept { return std::exp(std::clamp(error_.value(), 0.0, 1.0)); }

 private:
  running_quantile error_;
};

/// Time between tokens: how much longer steps are at the end of a request than was predicted when it was
/// admitted: others joined, contexts grew, machines are uneven. The factor is the multiple of the prediction
/// that a share of the requests stays below.
/// @thread  Owned by the conductor; not synchronised.
class tbt_margin {
 public:
  /// @param predicted  without the margin. @param actual  the latest step of its instance as it ended.
  void observe(duration predicted, duration actual, duration slo) noexcept {
    if (predicted < slo / 2 || actual <= duration{}) return;  // far from the SLO errors decide nothing
    error_.observe(std::log(to_seconds(actual) / to_seconds(predicted)));
  }
  double factor() const noexcept { return std::exp(std::clamp(error_.value(), 0.0, 0.7)); }

 private:
  running_quantile error_{0.8, 0.01, 0.05};
};

}  // namespace mooncaf
