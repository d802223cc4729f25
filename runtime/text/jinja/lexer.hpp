#pragma once
// A template's text as tokens, with the white space that transformers' settings take away already gone.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mooncaf::jinja {

struct token {
  enum class kind : std::uint8_t {
    data,         ///< text between tags
    block_begin,  ///< {%
    block_end,
    print_begin,  ///< {{
    print_end,
    name,
    string,  ///< its escapes are resolved
    integer,
    number,
    symbol,
    end
  };
  kind what = kind::end;
  std::string said;
  std::uint32_t line = 0;
};

/// Tags are {{ }}, {% %} and {# #}; a line end behind a block tag or comment, and blanks before one at the
/// start of a line, go (trim_blocks, lstrip_blocks), unless "+" says otherwise; "-" takes all white space.
/// @param source  well-formed UTF-8.
/// @throws template_error with the line.
std::vector<token> lex(std::string_view source);

}  // namespace mooncaf::jinja
