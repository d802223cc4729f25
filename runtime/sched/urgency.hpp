#pragma once
// Priority classes that age: a request that waits long enough overtakes all others.

#include <algorithm>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// One rule, live and simulated, in the conductor's queue and the workers': a request that has waited for as
/// long as the TTFT SLO, since it came to a gateway, is a class more urgent. Before that the classes are kept
/// apart. This is the default of that SLO.
inline constexpr duration default_aging = std::chrono::seconds(30);

/// The class of a request at `now`: its priority (0 first), one better per `aging` waited, without a lower
/// end. A request that arrives later by more than `aging` times the difference of their priorities never goes
/// first.
inline std::int64_t aged_class(std::uint8_t priority, time_point arrival, time_point now,
                               duration aging) noexcept {
  return priority - std::max<duration>(now - arrival, duration{}) / std::max(aging, duration{1});
}

}  // namespace mooncaf
