#pragma once
// A request's time between tokens as SLOs count it: the mean of its slowest tenth of gaps, of ten at the least. One
// long stall spoils an answer, and no mean of all gaps shows it.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

inline constexpr std::int64_t least_slow_gaps = 10, gaps_per_slow_one = 10;

/// How many of a request's gaps count.
constexpr std::int64_t slow_gaps_of(std::int64_t gaps) noexcept {
  return std::min(gaps, std::max((gaps + gaps_per_slow_one - 1) / gaps_per_slow_one, least_slow_gaps));
}

/// @thread  Owned by who hears the tokens; not synchronised.
class slowest_gaps {
 public:
  void add(duration gap) {
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    all_.push_back(static_cast<std::uint32_t>(std::clamp<std::int64_t>(gap.count() / 1000, 0, most)));
  }
  /// To the microsecond; zero: there are no gaps. @cost  linear in their number. Puts them in another order.
  duration mean() {
    if (all_.empty()) return {};
    const auto slow = slow_gaps_of(static_cast<std::int64_t>(all_.size()));
    std::nth_element(all_.begin(), all_.begin() + (slow - 1), all_.end(), std::greater{});
    const auto sum = std::accumulate(all_.begin(), all_.begin() + slow, std::int64_t{0});
    return std::chrono::microseconds(sum / slow);
  }

 private:
  std::vector<std::uint32_t> all_;  // microseconds
};

}  // namespace mooncaf
