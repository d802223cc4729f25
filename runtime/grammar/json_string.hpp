#pragma once
// JSON's strings under a schema, as expressions of GBNF.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// One character of a JSON string, plain or escaped, as a rule's right side. What it stands for is always a
/// character: no half of a surrogate pair.
std::string json_char_rule();
/// `text`, well-formed UTF-8, as a literal for the JSON string of it, quotes included.
std::string json_text_literal(std::string_view text);
/// A string, quotes included, whose content matches `pattern` somewhere, as JSON schema says. @error
/// `regex_expression`.
result<std::string> json_pattern(std::string_view pattern);
/// A string of this `format`. @error `ec::invalid_argument`: a format that is not known here, and those that
/// are.
result<std::string> json_format(std::string_view format);
/// Makes a rule of a right side and returns its name.
using make_rule_fn = std::function<std::string(std::string)>;
/// JSON strings, quotes included, that are none of `names` and have no character that needs an escape.
std::string json_other_key(const std::vector<std::string>& names, const make_rule_fn& make_rule);

}  // namespace mooncaf
