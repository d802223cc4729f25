#pragma once
// The right of a conductor to do what one conductor of a cluster does.

#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// As `leadership_core` grants it: no other conductor has it before `until`.
struct lead_right {
  time_point until{};            ///< past: another may lead
  std::uint64_t term = 0;        ///< under which it leads
  std::uint64_t led_before = 0;  ///< the latest earlier term under which a conductor led; 0: none is known
  friend bool operator==(const lead_right&, const lead_right&) = default;
};

}  // namespace mooncaf
