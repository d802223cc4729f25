#pragma once
// When a process that ended is started again.

#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf::launch {

struct restart_limits {
  duration first = std::chrono::milliseconds(250);  ///< wait after the first end
  duration longest = std::chrono::seconds(30);
  duration steady = std::chrono::seconds(30);  ///< a process that ran for so long counts as healthy
  std::uint32_t loop = 4;  ///< so many ends in a row, none of them after a steady run, are a crash loop
};

/// Doubles the wait with every end that comes soon after a start.
class restart_policy {
 public:
  explicit restart_policy(restart_limits limits = {}) : limits_(limits) {}

  /// @returns how long to wait. @param ran  from start to end.
  duration ended(duration ran) {
    if (ran >= limits_.steady) in_row_ = 0;
    const auto doublings = in_row_ < 20 ? in_row_ : 20;
    ++in_row_;
    const auto wait = limits_.first * (std::int64_t{1} << doublings);
    return wait < limits_.longest ? wait : limits_.longest;
  }

  /// @param running_for  zero unless it runs.
  bool loops(duration running_for) const { return in_row_ >= limits_.loop && running_for < limits_.steady; }

 private:
  restart_limits limits_;
  std::uint32_t in_row_ = 0;
};

}  // namespace mooncaf::launch
