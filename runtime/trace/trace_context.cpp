#include "runtime/trace/trace_context.hpp"

#include <array>
#include <charconv>
#include <cstdio>

namespace mooncaf {

namespace {

/// `digits` lower-case hexadecimal digits at the front of `text`, which they leave.
std::optional<std::uint64_t> take_hex(std::string_view& text, std::size_t digits) {
  const auto taken = text.substr(0, digits);
  if (taken.size() != digits || taken.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(taken.data(), taken.data() + taken.size(), value, 16);
  text.remove_prefix(digits);
  return value;
}

bool take_dash(std::string_view& text) {
  if (!text.starts_with('-')) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<trace_parent> parse_traceparent(std::string_view header) {
  const auto version = take_hex(header, 2);
  if (!version || *version == 0xFF || !take_dash(header)) return std::nullopt;
  const auto high = take_hex(header, 16), low = high ? take_hex(header, 16) : high;
  if (!low || (*high == 0 && *low == 0) || !take_dash(header)) return std::nullopt;
  const auto span = take_hex(header, 16);
  if (!span || *span == 0 || !take_dash(header)) return std::nullopt;
  const auto flags = take_hex(header, 2);
  // Versions to come may have more behind a dash.
  if (!flags || (*version == 0 ? !header.empty() : !header.empty() && !take_dash(header)))
    return std::nullopt;
  return trace_parent{{*high, *low}, *span, (*flags & 1) != 0};
}

std::string hex_of(std::uint64_t span) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(span));
  return {digits.data(), 16};
}

}  // namespace mooncaf
