// Places that share what is found for one of them do the same on every text that is as short as a token.

#include "runtime/grammar/place_classes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "runtime/grammar/regex.hpp"

using namespace mooncaf;

namespace {

automaton compiled(const std::string& pattern) {
  const auto text = grammar_of_regex(pattern);
  REQUIRE(text.has_value());
  auto rules = automaton::compile(*parse_gbnf(*text));
  REQUIRE(rules.has_value());
  return std::move(*rules);
}

/// Where each byte of `text` leads from `place`: "." goes on, "!" may end there, "x" and no more: nowhere.
std::string walk(const automaton& rules, std::uint32_t place, const std::string& text) {
  std::string out = rules.ends(place) ? "!" : ".";
  for (const char c : text) {
    const auto edges = rules.edges(place);
    const auto byte = static_cast<std::uint8_t>(c);
    const auto e =
        std::ranges::find_if(edges, [&](const auto& one) { return one.low <= byte && byte <= one.high; });
    if (e == edges.end()) return out + "x";
    place = e->to;
    out += rules.ends(place) ? "!" : ".";
  }
  return out;
}

}  // namespace

TEST_CASE("repetitions are one class, but near their ends, and classes do the same") {
  const auto rules = compiled("([A-C][a-c]{1,4}( [a-c]{1,3}){2,4}[.?] ){60,80}");
  constexpr std::size_t bytes = 6;
  const auto classes = place_classes(rules, bytes);
  REQUIRE(classes.size() == rules.place_count());
  const auto different = std::set<std::uint32_t>(classes.begin(), classes.end()).size();
  CHECK(different < rules.place_count() / 4);
  CHECK(different > 10);
  std::mt19937 random(3);
  const std::string letters = "AaBbc .?";
  for (int round = 0; round < 20'000; ++round) {
    const auto place = static_cast<std::uint32_t>(random() % rules.place_count());
    std::string text;
    for (auto n = random() % (bytes + 1); n > 0; --n) text += letters[random() % letters.size()];
    INFO("place ", place, " as ", classes[place], " on '", text, "'");
    REQUIRE(walk(rules, place, text) == walk(rules, classes[place], text));
  }
}

TEST_CASE("where there is little to share every place stays what it is") {
  for (const auto* pattern : {"[a-z]{1,5}", "a(b(c(d|e)f)g){2}"}) {
    const auto rules = compiled(pattern);
    const auto classes = place_classes(rules, 8);
    for (std::uint32_t p = 0; p < rules.place_count(); ++p) CHECK(classes[p] == p);
  }
}
