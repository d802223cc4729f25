#pragma once
// JSON's numbers within bounds, and multiples of a number, as expressions of GBNF.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// A number as its digits, exactly.
struct decimal {
  bool negative = false;
  std::string whole = "0";  ///< without zeros in front
  std::string fraction;     ///< without zeros at the end

  /// @param text  a number as JSON writes it. @returns nothing beyond 16 digits in front of the point or 15
  /// behind it.
  static std::optional<decimal> parse(std::string_view text);
  friend bool operator==(const decimal&, const decimal&) = default;
};
bool less(const decimal& a, const decimal& b) noexcept;

/// The numbers that are wanted; empty: any.
struct number_bounds {
  std::optional<decimal> low, high;
  bool above_low = false, below_high = false;  ///< whether the bound itself is outside
  std::optional<decimal> multiple_of;          ///< above zero

  bool any() const noexcept { return low || high || multiple_of; }
};

/// Makes a rule of a right side and returns its name.
using make_rule_fn = std::function<std::string(std::string)>;

inline constexpr std::int64_t largest_divisor =
    250;  ///< of `multiple_of`, without point and zeros at the end

/// Whole numbers within `bounds`; empty if there are none.
/// @error `ec::invalid_argument`: `multiple_of` is beyond `largest_divisor`.
result<std::string> integer_expression(const number_bounds& bounds, const make_rule_fn& make_rule);
/// Numbers within `bounds`, which may have a fraction: so short that its reading as a double rounds to no
/// bound. Empty if there are none. @error as above.
result<std::string> number_expression(const number_bounds& bounds, const make_rule_fn& make_rule);

}  // namespace mooncaf
