#pragma once
// How long things take: prefill passes, decode steps, transfers. Fitted from a calibration run, refined by what is
// measured while serving.

#include "runtime/base/units.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace mooncaf {

/// One measurement: two numbers that explain it, and the time it took.
struct timing_point {
  double a = 0;        ///< prefill: new tokens; decode: sequences in the batch
  double b = 0;        ///< prefill: cached tokens; decode: context tokens of all sequences
  double seconds = 0;
};

/// Least squares over three features with no negative weight: t = w0·x0 + w1·x1 + w2·x2. Features whose weight would
/// be negative are left out, since more work never takes less time.
std::array<double, 3> fit_nonnegative(std::span<const std::array<double, 3>> features, std::span<const double> seconds);

/// A fitted model times a slowly moving correction: what is measured while serving pulls the correction towards
/// measured / predicted, within [1/4, 4] of the calibration.
class online_correction {
 public:
  void observe(double predicted_seconds, double measured_seconds) noexcept;
  double factor() const noexcept { return factor_; }

 private:
  double factor_ = 1;
};

/// Time to prefill `n` new tokens behind `p` cached ones: w0 + w1·n + w2·(n·p + n²/2). The last term counts the
/// query-key pairs of causal attention; F25 section 4.1 has the same form, with flops(n) = layers·(a·n²·d + b·n·d²).
class prefill_model {
 public:
  prefill_model() = default;
  explicit prefill_model(std::span<const timing_point> samples);

  duration estimate(std::uint64_t new_tokens, std::uint64_t cached_tokens) const noexcept;
  void observe(std::uint64_t new_tokens, std::uint64_t cached_tokens, duration measured) noexcept;

 private:
  double raw(double n, double p) const noexcept { return weights_[0] + weights_[1] * n + weights_[2] * (n * p + n * n / 2); }
  std::array<double, 3> weights_{1e-3, 1e-4, 0};
  online_correction correction_;
};

/// Time of a decode step: w0 + w1·batch + w2·context tokens of all its sequences.
class decode_model {
 public:
  decode_model() = default;
  explicit decode_model(std::span<const timing_point> samples);

  duration estimate(std::uint64_t batch, std::uint64_t context_tokens) const noexcept;
  void observe(std::uint64_t batch, std::uint64_t context_tokens, duration measured) noexcept;

 private:
  double raw(double batch, double context) const noexcept {
    return weights_[0] + weights_[1] * batch + weights_[2] * context;
  }
  std::array<double, 3> weights_{1e-3, 1e-3, 0};
  online_correction correction_;
};

/// Time to bring bytes from another node: latency plus bytes over bandwidth, shared with what its sender sends already.
struct transfer_model {
  double bytes_per_s = 1.5e9;
  duration latency = std::chrono::milliseconds(1);

  duration estimate(std::uint64_t bytes, std::uint64_t sender_in_flight_bytes = 0) const noexcept {
    return latency + from_seconds(static_cast<double>(bytes + sender_in_flight_bytes) / bytes_per_s);
  }
};

}  // namespace mooncaf
