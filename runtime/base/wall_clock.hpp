#pragma once
// The time that people's clocks show, for numbers that must grow over the lives of processes.

#include <chrono>
#include <cstdint>

namespace mooncaf {

/// Microseconds since 1970. Differs between hosts, and may go back.
inline std::uint64_t wall_clock_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace mooncaf
