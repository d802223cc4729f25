#pragma once
// Parsers of what a client of the store's HTTP endpoint may send; pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncaf::store {

/// @returns nothing for a percent sign without two hexadecimal digits behind it.
std::optional<std::string> percent_decoded(std::string_view text);
/// The value of a name in a query. @returns empty if it is not there; nothing for a percent sign as above.
std::optional<std::string> query_text(std::string_view query, std::string_view name);
/// Value of a whole number in a query; nothing if it is not there, or none.
std::optional<std::uint32_t> query_number(std::string_view query, std::string_view name);

/// The part of a value that a `Range` header asks for. @returns all of it for a header that says nothing that
/// is understood, as HTTP wants it; nothing where the range lies outside.
struct byte_range {
  std::uint64_t begin = 0, end = 0;  ///< end: behind the last byte
  bool partial = false;
};
std::optional<byte_range> parse_range(std::string_view header, std::uint64_t size);

}  // namespace mooncaf::store
