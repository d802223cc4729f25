#pragma once
// Well-formed UTF-8: tells it from the rest, which it replaces, and finds bytes at an end that may still
// become a character.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace mooncaf::utf8 {

/// Length of the leading run of ASCII bytes.
inline std::size_t ascii_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080ull) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

namespace detail {

struct lead_rule {
  std::size_t length;  ///< of the whole character; 0: no lead byte
  unsigned char second_low, second_high;
};

/// The second byte carries the limits that keep out overlong forms, surrogates and values past U+10FFFF.
constexpr lead_rule rule_of(unsigned char lead) noexcept {
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

/// Bytes from `pos` on that fit the character which its lead byte opens; `whole` says whether all are there.
inline std::size_t subpart(std::string_view text, std::size_t pos, bool& whole) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  whole = false;
  const lead_rule rule = rule_of(at(pos));
  if (rule.length == 0) return 1;
  std::size_t n = 1;
  while (n < rule.length && pos + n < text.size()) {
    const unsigned char low = n == 1 ? rule.second_low : 0x80;
    const unsigned char high = n == 1 ? rule.second_high : 0xBF;
    if (at(pos + n) < low || at(pos + n) > high) break;
    ++n;
  }
  whole = n == rule.length;
  return n;
}

/// First ill-formed position, or the size.
inline std::size_t well_formed_prefix(std::string_view text, std::size_t pos) noexcept {
  while (pos < text.size()) {
    pos += ascii_prefix(text.substr(pos));
    while (pos < text.size() && static_cast<unsigned char>(text[pos]) >= 0x80) {
      bool whole = false;
      const std::size_t n = subpart(text, pos, whole);
      if (!whole) return pos;
      pos += n;
    }
  }
  return pos;
}

}  // namespace detail

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

inline bool is_well_formed(std::string_view text) noexcept {
  return detail::well_formed_prefix(text, 0) == text.size();
}

/// Every maximal ill-formed subpart becomes one U+FFFD (Unicode 15, section 3.9, table 3-8).
inline std::string to_well_formed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t good = detail::well_formed_prefix(text, pos);
    out.append(text.substr(pos, good - pos));
    if (good == text.size()) break;
    bool whole = false;
    pos = good + detail::subpart(text, good, whole);
    out += "\xEF\xBF\xBD";
  }
  return out;
}

/// Length in [0, 3] of the longest tail that is a proper prefix of some well-formed character.
inline std::size_t incomplete_tail(std::string_view text) noexcept {
  for (std::size_t n = std::min<std::size_t>(3, text.size()); n > 0; --n) {
    const std::size_t pos = text.size() - n;
    bool whole = false;
    if (detail::rule_of(static_cast<unsigned char>(text[pos])).length > n &&
        detail::subpart(text, pos, whole) == n)
      return n;
  }
  return 0;
}

/// Appends `c`, a Unicode scalar value.
inline void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

}  // namespace mooncaf::utf8
