#pragma once
// Between the values of the rooms below and the messages that carry them.

#include <span>

#include "actors/messages.hpp"
#include "runtime/sched/estimators.hpp"

namespace mooncaf {

/// Calibration passes as they travel, for the estimators.
inline std::vector<timing_point> as_timing_points(std::span<const std::array<std::int64_t, 3>> samples) {
  std::vector<timing_point> out;
  out.reserve(samples.size());
  for (const auto& s : samples) {
    out.push_back({static_cast<double>(s[0]), static_cast<double>(s[1]), static_cast<double>(s[2]) * 1e-9});
  }
  return out;
}

}  // namespace mooncaf
