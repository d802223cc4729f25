#pragma once
// JSON's numbers within bounds, as expressions of GBNF.

#include <cstdint>
#include <optional>
#include <string>

namespace mooncaf {

/// Bounds of a number; nothing: none. Fractional bounds are rounded inwards.
struct number_bounds {
  std::optional<double> low, high;
  bool above_low = false, below_high = false;  ///< whether the bound itself is outside

  bool any() const noexcept { return low || high; }
};

inline constexpr double number_bound_limit =
    9e15;  ///< larger bounds are refused: doubles are no longer whole

/// Whole numbers within `bounds`; empty if there are none. @pre bounds lie within ± number_bound_limit.
std::string integer_expression(const number_bounds& bounds);
/// Numbers within `bounds`, with a fraction where all fractions fit; empty if none were found. @pre as above.
std::string number_expression(const number_bounds& bounds);

}  // namespace mooncaf
