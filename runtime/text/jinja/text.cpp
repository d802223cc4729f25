#include "runtime/text/jinja/text.hpp"

#include <unicode/uchar.h>

#include "runtime/base/utf8.hpp"

namespace mooncaf::jinja {

text from_utf8(std::string_view bytes, char32_t mark) {
  std::string repaired;
  if (!utf8::is_well_formed(bytes)) bytes = repaired = utf8::to_well_formed(bytes);
  text out;
  out.reserve(bytes.size());
  for (std::size_t pos = 0; pos < bytes.size();) out.push_back(utf8::next(bytes, pos) | mark);
  return out;
}

std::string to_utf8(text_view from) {
  std::string out;
  out.reserve(from.size());
  for (const char32_t c : from) utf8::append(out, bare(c));
  return out;
}

bool is_space(char32_t c) noexcept {
  c = bare(c);
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return u_isUWhiteSpace(static_cast<UChar32>(c));
}

char32_t to_upper(char32_t c) noexcept {
  return static_cast<char32_t>(u_toupper(static_cast<UChar32>(bare(c)))) | (c & foreign);
}
char32_t to_lower(char32_t c) noexcept {
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(bare(c)))) | (c & foreign);
}
bool is_letter(char32_t c) noexcept { return u_isalpha(static_cast<UChar32>(bare(c))); }
bool is_digit(char32_t c) noexcept { return u_isdigit(static_cast<UChar32>(bare(c))); }

text_view strip(text_view from, const text_view* which, bool left, bool right) noexcept {
  const auto goes = [&](char32_t c) { return which ? which->find(c) != text_view::npos : is_space(c); };
  while (left && !from.empty() && goes(from.front())) from.remove_prefix(1);
  while (right && !from.empty() && goes(from.back())) from.remove_suffix(1);
  return from;
}

}  // namespace mooncaf::jinja
