#pragma once
// The right of a conductor to do what one conductor of a cluster does.

#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// The last time that a conductor of this process led, in an earlier life, too; zeros: never, or nobody knows.
struct last_lead {
  std::uint64_t term = 0;
  std::uint64_t clock_us = 0;  ///< wall clock of the leader when it had the right, µs since 1970
};

/// As `leadership_core` grants it: no other conductor has it before `until`.
struct lead_right {
  time_point until{};            ///< past: another may lead
  std::uint64_t term = 0;        ///< under which it leads
  std::uint64_t led_before = 0;  ///< the latest earlier term under which a conductor led; 0: none is known
  /// Numbers that earlier leaders made of their wall clocks, which may have been ahead, are lower: µs since 1970.
  std::uint64_t numbers_from = 0;
  friend bool operator==(const lead_right&, const lead_right&) = default;
};

}  // namespace mooncaf
