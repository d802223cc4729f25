#pragma once
// How often nodes tell and the conductor looks, whatever else happens: live and simulated.

#include "runtime/base/units.hpp"

namespace mooncaf {

/// A node tells the conductor how it stands, the load of its workers included.
inline constexpr duration report_interval = std::chrono::milliseconds(200);
/// The conductor looks for silent members, at requests that wait, and for hot blocks.
inline constexpr duration conductor_interval = std::chrono::milliseconds(500);

}  // namespace mooncaf
