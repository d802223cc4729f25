#include "config/toml.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;
using namespace mooncaf::config;

TEST_CASE("sections, keys, strings, numbers, booleans and comments are read") {
  const auto entries = parse_toml(
      "\xEF\xBB\xBF# top\n[a]\nx = \"q\\\"\\n\\u00e9\" # after\n y=1_000\r\nz = true\n[ b ]\nw = 'raw\\n'\nv "
      "= -1.5e3",
      "f");
  REQUIRE(entries.has_value());
  REQUIRE(entries->size() == 5);
  const auto& e = *entries;
  CHECK((e[0].section == "a" && e[0].key == "x" && e[0].value == "q\"\n\u00e9" &&
         e[0].type == toml_type::string));
  CHECK((e[1].value == "1000" && e[1].type == toml_type::number && e[1].line == 4));
  CHECK((e[2].value == "true" && e[2].type == toml_type::boolean));
  CHECK((e[3].section == "b" && e[3].value == "raw\\n"));
  CHECK((e[4].value == "-1.5e3" && e[4].type == toml_type::number));
}

TEST_CASE("what is not understood is refused with its line") {
  struct row {
    std::string_view text, message;
  };
  for (const auto& [text, message] : std::initializer_list<row>{
           {"a", "f:1: \"=\" is expected after \"a\""},
           {"\n\na =", "f:3: the value is missing"},
           {"a = b", "f:1: \"b\" is no number, true or false; put text in quotes"},
           {"a = \"b", "f:1: the string has no closing quote"},
           {"a = 'b", "f:1: the string has no closing quote"},
           {"a = \"\\q\"", "f:1: unknown escape in the string; write \\\\ for a backslash"},
           {"a = \"\\ud800\"", "f:1: the \\u escape is not a character"},
           {"a = \"\\u12\"", "f:1: the \\u escape is not a character"},
           {"a = \"\\", "f:1: unknown escape in the string; write \\\\ for a backslash"},
           {"a = 1 2", "f:1: nothing but a comment may follow the value of \"a\""},
           {"a = 1\na = 2", "f:2: \"a\" is given twice"},
           {"[s]\n[t]\n[s]", "f:3: section [s] is given twice"},
           {"[s", "f:1: a section is written [name] on a line of its own"},
           {"[]", "f:1: a name of letters, digits, _ and - is expected here"},
           {"[a.b]", "f:1: sections inside sections are not supported"},
           {"[[a]]", "f:1: arrays of tables are not supported"},
           {"a.b = 1", "f:1: dotted keys are not supported; use a [section]"},
           {"a = [1]", "f:1: arrays are not supported; lists are strings with commas"},
           {"a = {}", "f:1: inline tables are not supported"},
           {"a = \"\"\"x\"\"\"", "f:1: multi-line strings are not supported"},
           {"a = 2026-11-21", "f:1: \"2026-11-21\" is no number, true or false; put text in quotes"},
           {"a = \"\x01\"", "f:1: control characters are not allowed"},
           {"a = \"\xFF\"", "f:1: the line is not UTF-8"},
           {"= 1", "f:1: a name of letters, digits, _ and - is expected here"}}) {
    const auto entries = parse_toml(text, "f");
    INFO(text);
    REQUIRE(!entries);
    CHECK(entries.error() == ec::invalid_argument);
    CHECK(entries.error().detail == message);
  }
}

TEST_CASE("any text survives quoting") {
  std::mt19937 rng(5);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (unsigned n = rng() % 20; n > 0; --n) text.push_back(static_cast<char>(rng() % 128));
    const auto entries = parse_toml("k = " + toml_quoted(text), "f");
    INFO("seed 5, round ", round);
    REQUIRE(entries.has_value());
    REQUIRE(entries->at(0).value == text);
  }
}
