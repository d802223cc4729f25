#pragma once
// The limit of a request's cost, by how much room is left: cheap requests get in when it is scarce.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/sched/learned_margin.hpp"
#include "runtime/sched/work_rate.hpp"

namespace mooncaf {

/// Under overload some request is refused, and every one counts the same: refusing one of 30 s of prefill
/// makes room for twenty of 1.5 s. The largest cost that is taken falls with the load, from everything to the
/// cheapest:
///
///   limit   c_high ┤▔▔▔▔▔╲                     c_low, c_high: the range of costs seen of late
///                  │      ╲▁▁                  load: queue over the SLO, 0 … 1
///           c_low  ┤         ▔▔▔▔╲             free: up to here none is priced out
///                  └─────┴────────┴─ load
///                        free     1         … of the demand, the share that can be done
///
/// The more is asked for, admitted or not, the earlier prices rise: with little to choose from, a place that
/// is kept for a cheaper request stays empty; with plenty, it does not.
///
/// The queue settles where the intake is as much as the pool can do, below the SLO, which keeps TTFT inside
/// it even when estimates err: TTFT slack is spent on the requests that need the least of it.
/// @source  The exponential threshold of the online knapsack problem (Zhou, Chakrabarty, Lukose, WINE 2008).
/// @thread  Owned by the conductor; not synchronised.
class price_book {
 public:
  /// @param free    load up to which anything is taken while all demand can be met; below 1.
  /// @param memory  over how long demand is averaged.
  explicit price_book(double free, duration memory) noexcept : free_(free), asked_(memory) {}

  /// A request of this cost asked for a place; any unit, always the same.
  void observe(double cost, time_point now) noexcept {
    if (!(cost > 0)) return;
    asked_.add(cost, now);
    const double x = std::log2(cost);
    if (seen_++ == 0)
      high_ = running_quantile{high_share, high_step, x}, low_ = running_quantile{low_share, low_step, x};
    high_.observe(x);
    low_.observe(x);
  }
  /// The largest cost that is taken at this load. Until enough has been seen: any.
  /// @param capacity  cost that the pool works off per second.
  double limit(double load, double capacity, time_point now) const noexcept {
    const double free = free_ * std::min(capacity / std::max(asked_.at(now), 1e-9), 1.0);
    if (seen_ < enough || load <= free) return std::numeric_limits<double>::infinity();
    const double z = std::min((load - free) / (1 - free), 1.0);
    return std::exp2(high_.value() + (std::min(low_.value(), high_.value()) - high_.value()) * z);
  }

 private:
  // Upwards in large steps, so that it is near the longest before they are all over.
  static constexpr double high_share = 0.995, high_step = 0.2, low_share = 0.1, low_step = 0.05;
  static constexpr std::uint64_t enough = 64;
  running_quantile high_{high_share, high_step, 0}, low_{low_share, low_step, 0};  // log2
  double free_;
  work_rate asked_;
  std::uint64_t seen_ = 0;
};

}  // namespace mooncaf
