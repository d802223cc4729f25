#pragma once
// A strict reader of the part of TOML that options need: sections, and keys with a string, number or boolean.
//
// CLI11 can read TOML too, but takes a line that it does not understand for a flag, keeps escapes as they are
// and knows no line numbers; a mistyped file must be refused with the line.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf::config {

enum class toml_type : std::uint8_t { string, number, boolean };

/// One `key = value`.
struct toml_entry {
  std::string section;  ///< "" before the first [section]
  std::string key;
  std::string value;  ///< strings: without quotes, escapes resolved; numbers: without underscores
  toml_type type = toml_type::string;
  std::size_t line = 0;  ///< from 1
};

/// @param name  the file's, for error texts.
/// @error `ec::invalid_argument`, "NAME:LINE: …": ill-formed UTF-8 or syntax, a repeated section or key, and
/// the parts of TOML that no option has a use for (arrays, tables in tables, dates, multi-line strings).
result<std::vector<toml_entry>> parse_toml(std::string_view text, std::string_view name);

/// `text` as a TOML basic string, quotes included.
std::string toml_quoted(std::string_view text);

}  // namespace mooncaf::config
