#pragma once
// When a request that has no place is tried again, and when it is given up: the gateway's rules, which
// a simulated cluster follows, too.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf::retry_rules {

/// Without a live instance of a role a request that has no token yet is given up after this.
inline constexpr duration placing_limit = std::chrono::seconds(15);
inline constexpr std::uint32_t attempt_limit = 16;          ///< some 15 s with the waits between them
inline constexpr std::uint32_t placing_attempt_limit = 64;  ///< … that found no worker to go to
inline constexpr std::uint32_t loss_limit = 4;  ///< a request that kills workers must not kill them all

/// Waits longer from attempt to attempt: a dead worker is known at once, a full one needs time.
/// @param attempt  the one to come, from 1.
inline duration back_off(std::uint32_t attempt) {
  return std::chrono::milliseconds(20) * (1u << std::min(attempt, 6u));
}

}  // namespace mooncaf::retry_rules
