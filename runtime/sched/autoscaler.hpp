#pragma once
// How many instances a role should have.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <utility>

#include "runtime/base/units.hpp"
#include "runtime/sched/pool_load.hpp"
#include "runtime/sched/scheduler_defaults.hpp"

namespace mooncaf {

struct autoscaler_options {
  std::uint32_t least = 1, most = 1;
  double target = defaults::scheduler::target_load;  ///< load of an instance that is aimed at; above 0
  double tolerance = 0.1;                            ///< of it, within which nothing changes
  /// Fewer only if no more were needed for so long.
  duration down_after = defaults::scheduler::down_after;
};

/// The rule of the usual autoscalers: as many as bring the mean load to its target. More at once, fewer only
/// after a while, since an instance that was let go needs its start-up time, and its cache again, to come
/// back. Instances that others added are wanted for that while, too.
///
///   needed = ceil(running · load / target)        up: needed > there        down: max(needed, lately) <
///   there
///
/// @thread  Owned by one thread; not synchronised.
/// @source  Kubernetes, Horizontal Pod Autoscaler (algorithm details, stabilisation window).
class autoscaler {
 public:
  explicit autoscaler(const autoscaler_options& options) : options_(options) {}

  /// @param load   of the instances that run.
  /// @param there  how many there are or soon will be: those asked for count, those told to go do not.
  /// @returns how many there should be, in [least, most].
  std::uint32_t wanted(const pool_load& load, std::uint32_t there, time_point now) {
    const double wish = load.running * load.load / options_.target;
    // Without instances that run there is no load to go by.
    auto needed =
        load.running == 0 ? std::max(there, 1u) : static_cast<std::uint32_t>(std::ceil(wish - 1e-9));
    if (std::abs(wish - there) <= options_.tolerance * there) needed = there;
    needed = std::clamp(needed, options_.least, options_.most);
    while (!lately_.empty() && now - lately_.front().first > options_.down_after) lately_.pop_front();
    if (there > wanted_) note(now, there);
    note(now, needed);
    const auto lately = std::min(lately_.front().second, there);
    wanted_ = needed > there ? needed : std::clamp(lately, options_.least, options_.most);
    return wanted_;
  }

 private:
  void note(time_point now, std::uint32_t count) {
    while (!lately_.empty() && lately_.back().second <= count) lately_.pop_back();  // falling from the front
    lately_.emplace_back(now, count);
  }

  autoscaler_options options_;
  std::uint32_t wanted_ = 0;                                 // at the last call
  std::deque<std::pair<time_point, std::uint32_t>> lately_;  // the most that were needed since each time
};

}  // namespace mooncaf
