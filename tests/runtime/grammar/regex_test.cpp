#include "runtime/grammar/regex.hpp"

#include <doctest/doctest.h>

#include <random>
#include <regex>

#include "tests/runtime/grammar/grammar_fixture.hpp"

using namespace mooncaf;
using testing::accepts;
using testing::problem_of;

TEST_CASE("a regex holds the whole answer") {
  struct example {
    std::string pattern;
    std::vector<std::string> yes, no;
  };
  const example examples[] = {
      {R"(\d{3}-\d{4})", {"555-1234"}, {"555-123", "x555-1234"}},
      {R"(^(yes|no)$)", {"yes", "no"}, {"maybe", "yesno"}},
      {R"((?:ab)+?c?)", {"ab", "ababc"}, {"", "abcab"}},
      {R"((?P<year>19|20)\d\d)", {"1999", "2024"}, {"2124"}},
      {R"([^\s,]+(, [^\s,]+)*)", {"a", "a, b", "é, ü"}, {"a,b", "a b", "a, "}},
      {R"([\w.+-]+@\w+\.(com|org))", {"a.b@c.org"}, {"@c.org", "a@c.net"}},
      {R"(a{2,}b{,2})", {"aab{,2}", "aaab{,2}"}, {"ab{,2}", "aabb"}},
      {R"(\u00e9\x41\.\/)", {"éA./"}, {"eA./"}},
      {R"(.*)", {"", "anything"}, {"two\nlines"}},
      {R"([\]\\-a]+)", {"]", "\\", "a", "^_"}, {"b", "["}},
      {R"()", {""}, {"x"}},
      {R"(\W\D\S)", {"!a!", " -x"}, {"a!!", "!1!"}},
  };
  for (const auto& e : examples) {
    const auto grammar = grammar_of_regex(e.pattern);
    REQUIRE_MESSAGE(grammar.has_value(), e.pattern << ": " << problem_of(grammar));
    CAPTURE(e.pattern);
    for (const auto& text : e.yes) CHECK_MESSAGE(accepts(*grammar, text), text);
    for (const auto& text : e.no) CHECK_MESSAGE(!accepts(*grammar, text), text);
  }
}

TEST_CASE("what no grammar can hold is refused by name") {
  const std::pair<std::string, std::string> bad[] = {
      {"(?=a)b", "lookaround"},
      {"(?<!a)b", "lookaround"},
      {R"((a)\1)", "\\1 is not supported"},
      {R"(\bword\b)", "\\b is not supported"},
      {R"(\p{L}+)", "\\p is not supported"},
      {"a^b", "anchors"},
      {"(a", "')' is missing"},
      {"a)", "')' without '('"},
      {"[a", "not closed"},
      {"*a", "nothing to repeat"},
      {"a++", "not supported"},
      {"[z-a]", "range"},
      {"(?i)a", "kind of group"},
      {"a\\", "backslash ends"},
      {"[]a]", "']'"},
  };
  for (const auto& [pattern, words] : bad)
    CHECK_MESSAGE(problem_of(grammar_of_regex(pattern)).find(words) != std::string::npos,
                  pattern << " -> " << problem_of(grammar_of_regex(pattern)));
}

TEST_CASE("random patterns accept what std::regex accepts") {
  const unsigned seed = 3;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    const std::string atoms[] = {"a", "b", "[ab]", "[^a]", "c", "."};
    std::string out;
    for (unsigned i = 0; i <= below(3); ++i) {
      std::string part =
          depth > 0 && below(3) == 0 ? "(" + make(depth - 1) + "|" + make(depth - 1) + ")" : atoms[below(6)];
      const std::string repeats[] = {"", "", "", "?", "*", "+", "{2}", "{1,2}"};
      out += part + repeats[below(8)];
    }
    return out;
  };
  for (int round = 0; round < 60; ++round) {
    const auto pattern = make(2);
    const auto grammar = grammar_of_regex(pattern);
    REQUIRE_MESSAGE(grammar.has_value(), pattern);
    const std::regex reference(pattern);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (unsigned n = below(6); n > 0; --n) text += static_cast<char>('a' + below(3));
      CHECK_MESSAGE(accepts(*grammar, text) == std::regex_match(text, reference),
                    pattern << " on '" << text << "'");
    }
  }
}
