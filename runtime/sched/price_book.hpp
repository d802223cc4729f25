#pragma once
// What a request may cost, depending on how much is left: who is cheap gets in when room is scarce.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace mooncaf {

/// Under overload somebody is refused, and every request counts the same: refusing one of 30 s of prefill
/// makes room for twenty of 1.5 s. The largest cost that is taken falls with the load, from everything to the
/// cheapest:
///
///   limit   c_high ┤▔▔▔▔▔╲                     c_low, c_high: the range of costs seen of late
///                  │      ╲▁▁                  load: queue over the SLO, 0 … 1
///           c_low  ┤         ▔▔▔▔╲             free: up to here nobody is priced out
///                  └─────┴────────┴─ load
///                        free     1
///
/// The queue settles where what is taken is what the pool can do, below the SLO, which keeps TTFT inside it
/// even when estimates err: TTFT slack is spent on the requests that need the least of it.
/// @source  The exponential threshold of the online knapsack problem (Zhou, Chakrabarty, Lukose, WINE 2008).
/// @thread  Owned by the conductor; not synchronised.
class price_book {
 public:
  /// A request of this cost asked; any unit, always the same.
  void observe(double cost) noexcept {
    if (!(cost > 0)) return;
    const double x = std::log2(cost);
    // Quantiles by steps: up by the share above, down by the share below, so they stay where the shares
    // balance.
    high_ = first_ ? x : high_ + step * (x > high_ ? high_share : high_share - 1);
    low_ = first_ ? x : low_ + step * (x > low_ ? low_share : low_share - 1);
    first_ = false;
  }
  /// The largest cost that is taken at this load. Without an observation: any.
  double limit(double load) const noexcept {
    if (first_ || load <= free) return std::numeric_limits<double>::infinity();
    const double z = std::min((load - free) / (1 - free), 1.0);
    return std::exp2(high_ + (std::min(low_, high_) - high_) * z);
  }

 private:
  static constexpr double step = 0.05;
  static constexpr double high_share = 0.98, low_share = 0.1;
  static constexpr double free = 0.25;
  double high_ = 0, low_ = 0;  // log2
  bool first_ = true;
};

}  // namespace mooncaf
