#include "runtime/base/utf8.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;

TEST_CASE("each maximal ill-formed subpart becomes one replacement character") {
  struct row {
    std::string_view given, repaired;
  };
#define R "\xEF\xBF\xBD"
  for (const auto& [given, repaired] :
       std::initializer_list<row>{{"", ""},
                                  {"plain \xC3\xA9 \xF0\x9F\x98\x80", "plain \xC3\xA9 \xF0\x9F\x98\x80"},
                                  {"\xFF", R},
                                  {"\xC0\x80", R R},
                                  {"\xE2\x82x", R "x"},
                                  {"\xF0\x9F\x98\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80"},
                                  {"\xED\xA0\x80", R R R},
                                  {"\xF4\x90\x80\x80", R R R R},
                                  {"a\xE4\xBD", "a" R}}) {
    CHECK(utf8::to_well_formed(given) == repaired);
    CHECK(utf8::is_well_formed(given) == (given == repaired));
    CHECK(utf8::is_well_formed(utf8::to_well_formed(given)));
  }
#undef R
}

TEST_CASE("every scalar value survives append and next") {
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    utf8::append(text, c);
    std::size_t pos = 0;
    REQUIRE(utf8::is_well_formed(text));
    REQUIRE(utf8::next(text, pos) == c);
    REQUIRE(pos == text.size());
  }
}

TEST_CASE("an incomplete tail is what a further byte could complete") {
  CHECK(utf8::incomplete_tail("") == 0);
  CHECK(utf8::incomplete_tail("abc") == 0);
  CHECK(utf8::incomplete_tail("\xC3") == 1);
  CHECK(utf8::incomplete_tail("x\xE4\xBD") == 2);
  CHECK(utf8::incomplete_tail("\xF0\x9F\x98") == 3);
  CHECK(utf8::incomplete_tail("\xF0\x9F\x98\x80") == 0);
  CHECK(utf8::incomplete_tail("\xED\xA0") == 0);  // opens a surrogate: never a character
  CHECK(utf8::incomplete_tail("\xFF") == 0);
  CHECK(utf8::incomplete_tail("\x80\x80") == 0);
}
