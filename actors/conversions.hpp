#pragma once
// Between the values of the rooms below and the messages that carry them.

#include <span>

#include "actors/messages.hpp"
#include "runtime/model/sampler.hpp"
#include "runtime/sched/estimators.hpp"

namespace mooncaf {

constexpr finish_kind to_message(finish_reason reason) noexcept {
  switch (reason) {
    case finish_reason::none:
      return finish_kind::none;
    case finish_reason::stop:
      return finish_kind::stop;
    case finish_reason::length:
      return finish_kind::length;
  }
  return finish_kind::none;
}

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
