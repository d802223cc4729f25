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
  /// Another share is to stay below; what has been learned of errors stays.
  void cover(double share) noexcept { error_ = {share, 0.02, error_.value()}; }

  /// Predictions far below the SLO decide nothing and are ignored: their errors are hand-overs and rounding.
  void observe(duration predicted, duration actual, duration slo) noexcept {
    if (predicted < slo / 6 || actual <= duration{}) return;
    error_.observe(std::log(to_seconds(actual) / to_seconds(predicted)));
  }
  double factor() const noexcept { return std::exp(std::clamp(error_.value(), 0.0, 1.0)); }

 private:
  running_quantile error_;
};

/// Time between tokens, as SLOs count it (the mean of a request's slowest tenth of gaps), beside the step that
/// was predicted when it was admitted: steps differ, others join, contexts grow, machines are uneven. The factor is
/// the multiple of the prediction that half of the requests stay below: what is kept in reserve beyond it is a
/// policy's own. A larger share costs more requests that would have been in time than it saves from being slow.
/// @thread  Owned by the conductor; not synchronised.
class tbt_margin {
 public:
  /// @param predicted  without the margin. @param actual  its TBT. Steps that were shorter than predicted leave no
  /// more room than steps as predicted.
  void observe(duration predicted, duration actual, duration slo) noexcept {
    if (predicted < slo / 2 || actual <= duration{}) return;  // far from the SLO errors decide nothing
    error_.observe(std::max(std::log(to_seconds(actual) / to_seconds(predicted)), 0.0));
  }
  double factor() const noexcept { return std::exp(std::clamp(error_.value(), 0.0, 0.7)); }

 private:
  running_quantile error_{0.5, 0.01, 0.05};
};

/// How much passes differ from what the model says, beyond a steady error of it: the relative standard deviation.
/// @thread  Owned by the conductor; not synchronised.
class pass_noise {
 public:
  void observe(duration predicted, duration took) noexcept {
    if (predicted <= duration{} || took <= duration{}) return;
    const double error = std::log(to_seconds(took) / to_seconds(predicted));
    const double off = error - mean_;
    mean_ += off / memory;
    variance_ += (std::min(off * off, most) - variance_) / memory;
  }
  double value() const noexcept { return std::sqrt(variance_); }

 private:
  static constexpr double memory = 64;  // passes
  static constexpr double most = 1;     // a stall is not noise
  double mean_ = 0, variance_ = 0;
};

}  // namespace mooncaf
