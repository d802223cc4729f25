#pragma once
// How often something bounded gives a place back, for an honest Retry-After.

#include <algorithm>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// The mean time between places that came free of late. Requests that were refused since the last one are
/// taken to come back first: one that is refused now is told to come after them.
/// @thread  Owned by one thread; not synchronised.
class turnover {
 public:
  /// A place came free.
  void left(time_point now) noexcept {
    if (seen_) mean_ = mean_ == duration{} ? now - last_ : mean_ + (now - last_ - mean_) / memory;
    last_ = now;
    seen_ = true;
    refused_ = 0;
  }
  /// A request is refused. @returns when there should be a place for it, at least a second: from the mean
  /// time, or from the time since the last one came free, if that is longer already.
  duration refuse(time_point now) noexcept {
    constexpr duration least = std::chrono::seconds(1), most = std::chrono::minutes(10);
    ++refused_;
    if (!seen_) return least;
    const auto each = std::max<duration>(mean_, now - last_);
    return std::clamp<duration>(each > most / refused_ ? most : each * refused_, least, most);
  }

 private:
  static constexpr std::int64_t memory = 16;  // places
  time_point last_{};
  duration mean_{};
  std::int64_t refused_ = 0;
  bool seen_ = false;
};

}  // namespace mooncaf
