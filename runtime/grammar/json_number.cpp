#include "runtime/grammar/json_number.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace mooncaf {

namespace {

constexpr std::int64_t most = 9'999'999'999'999'999;  ///< sixteen digits
/// So short that what is parsed as a double does not round up to the next whole number, below `fine_limit`.
constexpr std::string_view fraction = " \".\" [0-9]{1,6}";
constexpr std::int64_t fine_limit = 1'000'000'000;

std::string some_digits(std::size_t count) {
  return count == 0 ? "" : count == 1 ? " [0-9]" : " [0-9]{" + std::to_string(count) + "}";
}

std::string digit_range(char low, char high) {
  return low == high ? " \"" + std::string{low} + "\"" : " [" + std::string{low} + "-" + high + "]";
}

/// Digit strings as long as `low`, from it on.
std::string at_least(std::string_view low) {
  if (low.empty()) return " \"\"";
  std::string out = digit_range(low[0], low[0]) + at_least(low.substr(1));
  if (low[0] < '9')
    out += " |" + digit_range(static_cast<char>(low[0] + 1), '9') + some_digits(low.size() - 1);
  return " (" + out + ")";
}

std::string at_most(std::string_view high) {
  if (high.empty()) return " \"\"";
  std::string out = digit_range(high[0], high[0]) + at_most(high.substr(1));
  if (high[0] > '0')
    out += " |" + digit_range('0', static_cast<char>(high[0] - 1)) + some_digits(high.size() - 1);
  return " (" + out + ")";
}

/// Digit strings of one length, between two of them.
std::string between(std::string_view low, std::string_view high) {
  if (low.empty()) return " \"\"";
  if (low[0] == high[0]) return digit_range(low[0], low[0]) + between(low.substr(1), high.substr(1));
  std::string out = digit_range(low[0], low[0]) + at_least(low.substr(1));
  if (high[0] - low[0] > 1) {
    out += " |" + digit_range(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)) +
           some_digits(low.size() - 1);
  }
  out += " |" + digit_range(high[0], high[0]) + at_most(high.substr(1));
  return " (" + out + ")";
}

/// Whole numbers in [low, high], 0 <= low; empty if there are none.
std::string natural(std::int64_t low, std::int64_t high) {
  if (low > high) return {};
  const auto first = std::to_string(low), last = std::to_string(high);
  std::string out;
  for (auto length = first.size(); length <= last.size(); ++length) {
    const auto from = length == first.size() ? first : "1" + std::string(length - 1, '0');
    const auto to = length == last.size() ? last : std::string(length, '9');
    out += (out.empty() ? "" : " |") + between(from, to);
  }
  return " (" + out + ")";
}

/// The whole numbers that bounds leave.
struct whole_bounds {
  std::int64_t low, high;
};
whole_bounds whole_of(const number_bounds& b) {
  whole_bounds out{-most, most};
  if (b.low) {
    const auto up = std::ceil(*b.low);
    out.low = static_cast<std::int64_t>(up) + (b.above_low && up == *b.low ? 1 : 0);
  }
  if (b.high) {
    const auto down = std::floor(*b.high);
    out.high = static_cast<std::int64_t>(down) - (b.below_high && down == *b.high ? 1 : 0);
  }
  return out;
}

void add(std::string& out, const std::string& part) {
  if (!part.empty()) out += (out.empty() ? "" : " |") + part;
}

/// Numbers without sign in [low, high]; `open_low`: above `low`.
std::string positive(std::int64_t low, bool open_low, std::int64_t high, bool open_high) {
  std::string out;
  add(out, natural(low + (open_low ? 1 : 0), high - (open_high ? 1 : 0)));
  // With a fraction, n is below n + 1: right up to the bound, which itself has none.
  const auto whole = natural(low + (open_low ? 1 : 0), high - (high > fine_limit ? 2 : 1));
  if (!whole.empty()) add(out, whole + std::string{fraction});
  if (open_low && low < std::min(high, fine_limit))
    add(out, " \"" + std::to_string(low) + ".\" [0-9]{0,5} [1-9]");
  return out.empty() ? out : " (" + out + ")";
}

}  // namespace

std::string integer_expression(const number_bounds& bounds) {
  if (!bounds.any()) return "(\"-\"? (\"0\" | [1-9] [0-9]{0,15}))";
  const auto [low, high] = whole_of(bounds);
  std::string out;
  add(out, natural(std::max<std::int64_t>(low, 0), high));
  if (const auto negative = natural(std::max<std::int64_t>(-high, 1), -low); !negative.empty())
    add(out, " \"-\"" + negative);
  return out.empty() ? out : "(" + out + ")";
}

std::string number_expression(const number_bounds& bounds) {
  if (!bounds.any())
    return "(\"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?)";
  // Fractional bounds are rounded inwards; a bound that is whole may be open.
  std::int64_t low = -most, high = most;
  bool open_low = false, open_high = false;
  if (bounds.low) {
    low = static_cast<std::int64_t>(std::ceil(*bounds.low));
    open_low = bounds.above_low && std::ceil(*bounds.low) == *bounds.low;
  }
  if (bounds.high) {
    high = static_cast<std::int64_t>(std::floor(*bounds.high));
    open_high = bounds.below_high && std::floor(*bounds.high) == *bounds.high;
  }
  std::string out;
  if (high >= 0) add(out, positive(std::max<std::int64_t>(low, 0), open_low && low >= 0, high, open_high));
  if (low < 0) {
    // Mirrored: -high is the lower bound of what stands behind the sign. Zero has none.
    const bool beyond_zero = high >= 0;
    const auto minus = positive(beyond_zero ? 0 : -high, beyond_zero || open_high, -low, open_low);
    if (!minus.empty()) add(out, " \"-\"" + minus);
  }
  return out.empty() ? out : "(" + out + ")";
}

}  // namespace mooncaf
