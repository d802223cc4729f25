#pragma once
// A disk that refuses writes is left alone for a while: it may be full, and asking costs.

#include <algorithm>
#include <optional>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Whether the disk may be asked to write, by the outcomes of earlier writes. The first refusal lasts 1 s,
/// each that follows twice as long as the one before, 60 s at most; a write that succeeds ends it.
/// @thread  not synchronised. Time comes in and never goes back.
class write_refusal {
 public:
  bool holds(time_point now) const noexcept { return now < until_; }
  /// Why the last write was refused, until one succeeds.
  const std::optional<error>& reason() const noexcept { return reason_; }
  /// Takes the outcome of a write.
  void note(const error& failure, time_point now) {
    if (failure.code == ec::none) {
      *this = {};
      return;
    }
    reason_ = failure;
    if (holds(now)) return;  // the write was under way when the first one was refused
    constexpr duration first = std::chrono::seconds(1), longest = std::chrono::seconds(60);
    pause_ = std::clamp(2 * pause_, first, longest);
    until_ = now + pause_;
  }
  /// The disk may be asked at once.
  void end_pause() noexcept { until_ = time_point{}; }

 private:
  std::optional<error> reason_;
  duration pause_{};
  time_point until_{};
};

}  // namespace mooncaf
