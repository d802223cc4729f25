#pragma once
// The time that bytes take over one path, learned from earlier transfers.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Time of a transfer = latency + bytes / rate. Both are learned: a measurement is compared with the
/// expectation, and each of the two terms takes its share of the (logarithmic) difference, so that small
/// transfers teach the latency and large ones the rate, and neither can become negative. The first
/// measurement counts in full: the assumption before it rests on none.
/// @thread  One owner; not synchronised.
class transfer_price {
 public:
  transfer_price() = default;
  /// An assumption to begin with.
  transfer_price(double bytes_per_s, duration latency)
      : seconds_per_byte_(1 / std::max(bytes_per_s, 1.0)), latency_(std::max(to_seconds(latency), least)) {}

  /// `bytes` took this long, the wait for bytes ahead of them not included. Nothing and no time teach
  /// nothing.
  void observe(std::uint64_t bytes, duration took) noexcept {
    const double measured = to_seconds(took);
    if (bytes == 0 || !(measured > 0)) return;
    // One that was held up by something else must not decide alone.
    if (samples_ > 0) {
      move_towards(static_cast<double>(bytes), measured, furthest, gain);
    } else {
      for (int i = 0; i < 20; ++i) move_towards(static_cast<double>(bytes), measured, 100, 1);
    }
    ++samples_;
  }

  duration estimate(std::uint64_t bytes) const noexcept {
    return from_seconds(std::min(latency_ + static_cast<double>(bytes) * seconds_per_byte_, 1e5));
  }
  /// How many bytes a transfer of this time moves: the reverse of `estimate`.
  std::uint64_t bytes_in(duration time) const noexcept {
    return static_cast<std::uint64_t>(
        std::clamp((to_seconds(time) - latency_) / seconds_per_byte_, 0.0, 1e18));
  }
  double bytes_per_s() const noexcept { return 1 / seconds_per_byte_; }
  duration latency() const noexcept { return from_seconds(latency_); }
  /// Between this one (`share` 1) and another (0), on a logarithmic scale.
  transfer_price mixed_with(const transfer_price& other, double share) const noexcept {
    auto out = *this;
    out.latency_ = other.latency_ * std::pow(latency_ / other.latency_, share);
    out.seconds_per_byte_ =
        other.seconds_per_byte_ * std::pow(seconds_per_byte_ / other.seconds_per_byte_, share);
    return out;
  }
  /// Measurements so far; 0: all of it is assumed.
  std::uint64_t samples() const noexcept { return samples_; }

 private:
  void move_towards(double bytes, double measured, double furthest_off, double share) noexcept {
    const double moving = bytes * seconds_per_byte_;
    const double expected = latency_ + moving;
    const double off = std::clamp(std::log(measured / expected), -furthest_off, furthest_off) * share;
    latency_ = std::max(latency_ * std::exp(off * latency_ / expected), least);
    seconds_per_byte_ = std::max(seconds_per_byte_ * std::exp(off * moving / expected), 1e-15);
  }

  static constexpr double least = 1e-6;    // s; no path is faster than a wake-up
  static constexpr double gain = 0.3;      // of the newest measurement
  static constexpr double furthest = 1.4;  // log 4
  double seconds_per_byte_ = 1 / 1.5e9;
  double latency_ = 1e-3;
  std::uint64_t samples_ = 0;
};

/// A price that is believed less the longer ago it was measured: a path that was slow once is otherwise never
/// tried, and so never measured, again.
class ageing_price {
 public:
  void observe(std::uint64_t bytes, duration took, time_point now) noexcept {
    learned_.observe(bytes, took);
    latest_ = now;
  }
  /// @param usual  what it returns to, and what it is before the first measurement.
  transfer_price at(time_point now, const transfer_price& usual) const noexcept {
    if (learned_.samples() == 0) return usual;
    const double age = to_seconds(std::max(now - latest_, duration{}));
    return learned_.mixed_with(usual, std::exp2(-age / half_life));
  }
  std::uint64_t samples() const noexcept { return learned_.samples(); }

 private:
  static constexpr double half_life = 60;  // seconds
  transfer_price learned_;
  time_point latest_{};
};

}  // namespace mooncaf
