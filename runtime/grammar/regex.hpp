#pragma once
// Regular expressions as grammars.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/grammar/gbnf.hpp"

namespace mooncaf {

/// The place of the text that a regex describes.
enum class regex_place : std::uint8_t {
  plain,        ///< the answer itself
  json_string,  ///< between the quotes of a JSON string: quotes, backslashes and control characters are
                ///< escaped
};

/// The syntax that ECMAScript and Python read the same way: classes, groups, alternatives, greedy and lazy
/// repetition, \d \w \s and their opposites, escapes, anchors at the ends of the whole. Where the two differ
/// (\W beyond ASCII), only texts that both take come out.
/// @param whole  whether the text must match from end to end; else (JSON schema) somewhere within it.
/// @returns an expression of GBNF. @error `ec::invalid_argument`: the mistake and its byte; syntax that is no
/// regular language (lookaround, references) or not known here is named.
result<std::string> regex_expression(std::string_view pattern, bool whole, regex_place place);
/// A grammar of the texts that match `pattern` from end to end. @error as `regex_expression`.
result<std::string> grammar_of_regex(std::string_view pattern);

/// One character of `ranges` (normalised) as an expression, as it stands at `place`.
std::string chars_expression(const std::vector<char_range>& ranges, regex_place place);

}  // namespace mooncaf
