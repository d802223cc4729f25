#pragma once
// JSON's strings under a schema, as expressions of GBNF.

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// One character of a JSON string, plain or escaped, as a rule's right side. It always stands for a whole
/// character: no half of a surrogate pair.
std::string json_char_rule();
/// `text`, well-formed UTF-8, as a literal for the JSON string of it, quotes included.
std::string json_text_literal(std::string_view text);
/// A string, quotes included, with `pattern` somewhere in its content, as JSON schema says. @error as
/// `regex_expression`.
result<std::string> json_pattern(std::string_view pattern);
/// A string of this `format`. @error `ec::invalid_argument`: an unknown format, and the known ones.
result<std::string> json_format(std::string_view format);
/// The pattern that stands for a format. @error as `json_format`.
result<std::string_view> json_format_pattern(std::string_view format);

}  // namespace mooncaf
