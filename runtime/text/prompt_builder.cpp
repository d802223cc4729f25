#include "runtime/text/prompt_builder.hpp"

#include <unicode/uchar.h>

#include "runtime/base/utf8.hpp"

namespace mooncaf {

namespace {

/// Python's str.isspace: White_Space and the four information separators.
bool is_python_space(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || u_isUWhiteSpace(static_cast<UChar32>(c));
}

}  // namespace

std::string_view trim(std::string_view text) {
  if (!utf8::is_well_formed(text)) {
    // Only the well-formed case has characters to speak of; bytes that are ASCII white space go all the same.
    constexpr std::string_view ascii_space = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
    const std::size_t first = text.find_first_not_of(ascii_space);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(ascii_space) - first + 1);
  }
  std::size_t begin = text.size(), end = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t start = pos;
    if (is_python_space(utf8::next(text, pos))) continue;
    begin = std::min(begin, start);
    end = pos;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view{};
}

std::string json_quoted(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += digits[c >> 4];
          out += digits[c & 15];
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

}  // namespace mooncaf
