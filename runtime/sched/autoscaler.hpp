#pragma once
// How many instances a role should have.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <utility>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct autoscaler_options {
  std::uint32_t least = 1, most = 1;
  double target = 0.7;                            ///< load of an instance that is aimed at; above 0
  double tolerance = 0.1;                         ///< of it, within which nothing changes
  duration down_after = std::chrono::minutes(5);  ///< fewer only if no more were needed for so long
};

/// The rule of the usual autoscalers: as many as bring the mean load to its target. More at once, fewer only
/// after a while, since an instance that was let go needs its start-up time, and its cache again, to come
/// back.
///
///   needed = ceil(running · load / target)        up: needed > there        down: max(needed, lately) <
///   there
///
/// @thread  Owned by one thread; not synchronised.
/// @source  Kubernetes, Horizontal Pod Autoscaler (algorithm details, stabilisation window).
class autoscaler {
 public:
  explicit autoscaler(const autoscaler_options& options) : options_(options) {}

  /// @param load     of an instance, mean over all that run; 1 is full, and waiting requests count beyond
  /// that.
  /// @param coming   instances asked for that do not run yet.
  /// @returns how many there should be, in [least, most].
  std::uint32_t wanted(double load, std::uint32_t running, std::uint32_t coming, time_point now) {
    const auto there = running + coming;
    const double wish = running * load / options_.target;
    // Without instances that run there is no load to go by.
    auto needed = running == 0 ? std::max(there, 1u) : static_cast<std::uint32_t>(std::ceil(wish - 1e-9));
    if (std::abs(wish - there) <= options_.tolerance * there) needed = there;
    needed = std::clamp(needed, options_.least, options_.most);
    while (!lately_.empty() && now - lately_.front().first > options_.down_after) lately_.pop_front();
    while (!lately_.empty() && lately_.back().second <= needed) lately_.pop_back();  // falling from the front
    lately_.emplace_back(now, needed);
    if (needed > there) return needed;
    return std::clamp(std::min(lately_.front().second, there), options_.least, options_.most);
  }

 private:
  autoscaler_options options_;
  std::deque<std::pair<time_point, std::uint32_t>> lately_;  // the most that were needed since each time
};

}  // namespace mooncaf
