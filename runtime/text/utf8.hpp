#pragma once
// Well-formed UTF-8: what is one, what replaces the rest, and which bytes at an end may still become a
// character.

#include <cstddef>
#include <string>
#include <string_view>

namespace mooncaf::utf8 {

/// Length of the leading run of ASCII bytes.
std::size_t ascii_prefix(std::string_view text) noexcept;

bool is_well_formed(std::string_view text) noexcept;

/// Every maximal ill-formed subpart becomes one U+FFFD (Unicode 15, section 3.9, table 3-8).
std::string to_well_formed(std::string_view text);

/// Length in [0, 3] of the longest tail that is a proper prefix of some well-formed character.
std::size_t incomplete_tail(std::string_view text) noexcept;

/// Code point at `pos` of well-formed text; moves `pos` behind it.
inline char32_t next(std::string_view text, std::size_t& pos) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[pos + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    ++pos;
    return lead;
  }
  char32_t c = 0;
  if (lead < 0xE0) {
    c = (lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    pos += 2;
  } else if (lead < 0xF0) {
    c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    pos += 3;
  } else {
    c = (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    pos += 4;
  }
  return c;
}

/// Appends `c`, a Unicode scalar value.
void append(std::string& text, char32_t c);

}  // namespace mooncaf::utf8
