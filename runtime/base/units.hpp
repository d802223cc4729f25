#pragma once
// Time is std::chrono and monotonic; code that needs it gets it as an argument.

#include <chrono>
#include <cstddef>

namespace mooncaf {

using clock_type = std::chrono::steady_clock;
using time_point = clock_type::time_point;
using duration = std::chrono::nanoseconds;

inline constexpr std::size_t KiB = std::size_t{1} << 10;
inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t GiB = std::size_t{1} << 30;

constexpr double to_seconds(duration d) noexcept { return std::chrono::duration<double>(d).count(); }
constexpr duration from_seconds(double s) noexcept {
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>(s));
}

}  // namespace mooncaf
