#pragma once
// How long things take: prefill passes, decode steps, transfers. Fitted from a calibration run, refined by
// measurements while serving.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// One measurement: two numbers that explain it, and the time it took.
struct timing_point {
  double a = 0;  ///< prefill: new tokens; decode: sequences in the batch
  double b = 0;  ///< prefill: cached tokens; decode: context tokens of all sequences
  double seconds = 0;
};

/// Measurements as they travel, of (a, b, nanoseconds).
inline std::vector<timing_point> as_timing_points(std::span<const std::array<std::int64_t, 3>> samples) {
  std::vector<timing_point> out;
  out.reserve(samples.size());
  for (const auto& s : samples)
    out.push_back({static_cast<double>(s[0]), static_cast<double>(s[1]), static_cast<double>(s[2]) * 1e-9});
  return out;
}

/// Least squares over three features with no negative weight: t = w0·x0 + w1·x1 + w2·x2. Relative errors
/// count, since a short pass is as important as a long one. Features that would get a negative weight are
/// left out: more work never takes less time.
std::array<double, 3> fit_nonnegative(std::span<const std::array<double, 3>> features,
                                      std::span<const double> seconds);

/// Seconds as a duration, in [0, 10^5 s]: sums of thousands of estimates stay within range. Not a number
/// gives the upper end.
duration bounded_duration(double seconds) noexcept;

/// A correction of a fitted model: time measured while serving over time that the calibration says, within
/// [1/100, 100]. Sums, not a mean of ratios: a queue is a sum of estimates, and the many short passes must
/// not outvote the long ones that fill it. One factor, not three weights: the batches that a busy worker
/// happens to run lie on a line, and refitting all weights from them would bend the model where nothing was
/// measured.
///
/// It moves slowly, over some 50 passes, so that noise does not sway it. A second factor follows the last
/// few: when all of them agree that the model is off by more than 1.5, they are believed. A calibration that
/// another program slowed down is put right within a handful of passes.
class online_correction {
 public:
  online_correction() = default;
  /// One that has learned this, and remembers no pass.
  explicit online_correction(double factor) noexcept : factor_(factor) {}
  void observe(double predicted_seconds, double measured_seconds) noexcept;
  double factor() const noexcept { return factor_; }

 private:
  /// Seconds of late, older ones fading.
  struct sums {
    double measured = 0, calibrated = 0;
    void add(double m, double c, double fading) noexcept {
      measured = measured * fading + m;
      calibrated = calibrated * fading + c;
    }
    double ratio() const noexcept { return measured / calibrated; }
  };
  double factor_ = 1;
  sums slow_, fast_;
  int high_ = 0, low_ = 0;  // passes in a row that took more than 1.5 times as long, or as short
};

/// All that a model's estimates follow from, at one moment.
struct model_state {
  std::array<double, 3> weights{};
  double factor = 1;  ///< of `online_correction`
};

/// Time to prefill `n` new tokens behind `p` cached ones: w0 + w1·n + w2·(n·p + n²/2). The last term counts
/// the query-key pairs of causal attention; F25 section 4.1 has the same form, with flops(n) = layers·(a·n²·d
/// + b·n·d²).
class prefill_model {
 public:
  prefill_model() = default;
  /// Fewer than three usable samples (positive, finite) keep the default: 1 ms + 0.1 ms per token.
  explicit prefill_model(std::span<const timing_point> samples);
  /// One that estimates as another did at that moment.
  explicit prefill_model(const model_state& at) : weights_(at.weights), correction_(at.factor) {}
  model_state state() const noexcept { return {weights_, correction_.factor()}; }

  duration estimate(std::uint64_t new_tokens, std::uint64_t cached_tokens) const noexcept {
    return bounded_duration(correction_.factor() *
                            raw(static_cast<double>(new_tokens), static_cast<double>(cached_tokens)));
  }
  void observe(std::uint64_t new_tokens, std::uint64_t cached_tokens, duration measured) noexcept;
  /// Whether two calibrations say the same within 10 % from 256 to 16,384 tokens, cached and not.
  bool agrees_with(const prefill_model& other) const noexcept;

 private:
  double raw(double n, double p) const noexcept {
    return weights_[0] + weights_[1] * n + weights_[2] * (n * p + n * n / 2);
  }
  std::array<double, 3> weights_{1e-3, 1e-4, 0};
  online_correction correction_;
};

/// Time of a decode step: w0 + w1·batch + w2·context tokens of all its sequences.
class decode_model {
 public:
  decode_model() = default;
  /// Fewer than three usable samples (positive, finite) keep the default: 1 ms + 1 ms per sequence.
  explicit decode_model(std::span<const timing_point> samples);
  explicit decode_model(const model_state& at) : weights_(at.weights), correction_(at.factor) {}
  model_state state() const noexcept { return {weights_, correction_.factor()}; }

  duration estimate(std::uint64_t batch, std::uint64_t context_tokens) const noexcept {
    return corrected(part_of(static_cast<double>(batch), static_cast<double>(context_tokens)));
  }
  /// The step that `part` (of `part_of`) belongs to.
  duration corrected(double part) const noexcept {
    return bounded_duration(correction_.factor() * (weights_[0] + part));
  }
  /// The part of a step beyond its constant: `batch` sequences of `context_tokens`, uncorrected, in seconds.
  /// Its order among instances of one class does not change while the correction moves.
  double part_of(double batch, double context_tokens) const noexcept {
    return weights_[1] * batch + weights_[2] * context_tokens;
  }
  void observe(std::uint64_t batch, std::uint64_t context_tokens, duration measured) noexcept;
  /// Whether two calibrations say the same within 10 % from 1 to 64 sequences of 512 to 8,192 tokens.
  bool agrees_with(const decode_model& other) const noexcept;

 private:
  std::array<double, 3> weights_{1e-3, 1e-3, 0};
  online_correction correction_;
};

/// Time to bring bytes from a node: its earlier transfers go first, then latency, then bytes over bandwidth;
/// blocks on SSD come no faster than its disk reads.
struct transfer_model {
  double bytes_per_s = 1.5e9;
  duration latency = std::chrono::milliseconds(1);
  double ssd_bytes_per_s = 1e9;

  /// @param wait  until the sender has sent the bytes promised earlier.
  duration estimate(std::uint64_t bytes, duration wait = {}, bool from_ssd = false) const noexcept {
    const double rate = from_ssd ? std::min(bytes_per_s, ssd_bytes_per_s) : bytes_per_s;
    return wait + latency + bounded_duration(static_cast<double>(bytes) / rate);
  }
  /// Time to read blocks from the node's own disk.
  duration read(std::uint64_t bytes) const noexcept {
    return bytes == 0 ? duration{} : bounded_duration(static_cast<double>(bytes) / ssd_bytes_per_s);
  }
};

}  // namespace mooncaf
