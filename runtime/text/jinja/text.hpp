#pragma once
// Text with the origin of each character.

#include <string>
#include <string_view>

namespace mooncaf::jinja {

/// Set in a character that a client wrote. The template's own characters have no mark, so that a prompt's
/// special tokens can be told from text that only looks like them, through whatever filters the text went.
inline constexpr char32_t foreign = 0x8000'0000;

constexpr char32_t bare(char32_t c) noexcept { return c & ~foreign; }

/// Compares and finds characters whatever their mark.
struct marked_traits : std::char_traits<char32_t> {
  static constexpr bool eq(char32_t a, char32_t b) noexcept { return bare(a) == bare(b); }
  static constexpr bool lt(char32_t a, char32_t b) noexcept { return bare(a) < bare(b); }
  static constexpr int compare(const char32_t* a, const char32_t* b, std::size_t n) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      if (bare(a[i]) != bare(b[i])) return bare(a[i]) < bare(b[i]) ? -1 : 1;
    }
    return 0;
  }
  static constexpr const char32_t* find(const char32_t* s, std::size_t n, const char32_t& c) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      if (bare(s[i]) == bare(c)) return s + i;
    }
    return nullptr;
  }
};

using text = std::basic_string<char32_t, marked_traits>;
using text_view = std::basic_string_view<char32_t, marked_traits>;

/// Ill-formed parts become U+FFFD. @param mark  0 or `foreign`, for every character.
text from_utf8(std::string_view bytes, char32_t mark = 0);
std::string to_utf8(text_view from);

// As Python's str has them; characters outside ASCII as Unicode says.
bool is_space(char32_t c) noexcept;
char32_t to_upper(char32_t c) noexcept;  ///< keeps the mark
char32_t to_lower(char32_t c) noexcept;
bool is_letter(char32_t c) noexcept;
bool is_digit(char32_t c) noexcept;

/// Without the characters of `which`, or white space if that is null, at the left and the right end.
text_view strip(text_view from, const text_view* which, bool left, bool right) noexcept;

}  // namespace mooncaf::jinja
