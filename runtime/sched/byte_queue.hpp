#pragma once
// The bytes that one end of a node's link has promised to move, and when.

#include <algorithm>
#include <cstdint>

#include "runtime/base/units.hpp"
#include "runtime/sched/sparse_buckets.hpp"

namespace mooncaf {

/// Bytes by the time at which they may begin to move, moved one after another: bytes due later leave the link
/// to others until then.
///
///   due     now ──┬─100─┬──0──┬─300─┬─ 20     hundredths of a second
///   waiting    0     60    20    280   260    after each, at 40 a part
///
/// @thread  Owned by the conductor; not synchronised.
class byte_queue {
 public:
  /// @param bytes_per_s  more than zero, here and below.
  void add(time_point due, double bytes, time_point now, double bytes_per_s) {
    advance(now, bytes_per_s);
    if (number_of(due) <= number_of(now_)) left_ += bytes;
    else due_.at(number_of(due)) += bytes;
  }
  /// Takes back bytes that were added and are not due yet; due ones pass by themselves. @returns bytes taken
  /// back.
  double remove(time_point due, double bytes, time_point now) {
    auto* at = number_of(due) > number_of(now) ? due_.find(number_of(due)) : nullptr;
    if (at == nullptr) return 0;
    *at -= bytes;
    if (*at < 1) due_.erase(number_of(due));
    return bytes;
  }
  /// How long bytes due at `when` wait for earlier ones. @cost  a step per bucket until then.
  duration wait(time_point when, double bytes_per_s) const noexcept {
    auto at = now_;
    double left = left_;
    const auto last = number_of(when);
    for (const auto& [number, bytes] : due_) {
      if (number > last) break;
      const auto then = std::max(time_of(number), at);
      left = drained(left, then - at, bytes_per_s) + bytes;
      at = then;
    }
    return from_seconds(std::min(drained(left, when - at, bytes_per_s) / bytes_per_s, longest));
  }

 private:
  static constexpr std::int64_t width = 10'000'000;  // ns; a fast link moves a prompt's KV in a few
  static constexpr double longest = 1e5;             // s
  static std::int64_t number_of(time_point t) noexcept { return t.time_since_epoch().count() / width; }
  static time_point time_of(std::int64_t number) noexcept { return time_point{duration{number * width}}; }
  static double drained(double left, duration over, double bytes_per_s) noexcept {
    return left > 0 ? std::max(left - to_seconds(over) * bytes_per_s, 0.0) : 0;
  }
  /// Bytes that are due by now begin to wait, and waiting bytes move.
  void advance(time_point now, double bytes_per_s) {
    if (now <= now_) return;
    const auto next = number_of(now) + 1;
    for (const auto& [number, bytes] : due_) {
      if (number >= next) break;
      const auto then = std::max(time_of(number), now_);
      left_ = drained(left_, then - now_, bytes_per_s) + bytes;
      now_ = then;
    }
    due_.drop_before(next);
    left_ = drained(left_, now - now_, bytes_per_s);
    now_ = now;
  }

  sparse_buckets<std::int64_t, double> due_;
  double left_ = 0;  // due by `now_` and not moved
  time_point now_{};
};

}  // namespace mooncaf
