#include "runtime/grammar/gbnf.hpp"

#include <doctest/doctest.h>

#include "runtime/grammar/automaton.hpp"
#include "runtime/grammar/choice.hpp"
#include "runtime/grammar/limits.hpp"
#include "tests/runtime/grammar/grammar_fixture.hpp"

using namespace mooncaf;
using testing::accepts;
using testing::problem_of;

namespace {

std::string compile_problem(const std::string& text) {
  const auto parsed = parse_gbnf(text);
  if (!parsed) return problem_of(parsed);
  return problem_of(automaton::compile(*parsed));
}

struct gbnf_example {
  std::string grammar;
  std::vector<std::string> yes, no;
};

}  // namespace

TEST_CASE("a grammar allows its answers and no others") {
  const gbnf_example examples[] = {
      {R"(root ::= "yes" | "no")", {"yes", "no"}, {"", "y", "yesno", "Yes"}},
      {R"(root ::= [0-9]+ ("." [0-9]{1,2})?)", {"7", "42.5", "0.25"}, {"", ".5", "1.", "1.234"}},
      {R"(root ::= [^a-c\]]{2})", {"dd", "é日", "[["}, {"d", "da", "d]", "ddd"}},
      {R"(root ::= "a"* "b"{2} "c"{1,} "d"{0,1})", {"bbc", "aabbccd"}, {"bc", "bb", "bbcdd"}},
      {"root ::= item (\",\" item)*  # a list\nitem ::= \"x\" |\n  \"y\"\n", {"x", "x,y,y"}, {"x,", ",x"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()", ")("}},
      {R"(root ::= "\x41\u00e9\U0001F600\n\t\"\\")", {"Aé😀\n\t\"\\"}, {"A"}},
      {R"(root ::= .)", {"a", "é", "😀"}, {"", "ab"}},
      {R"(root ::= [\u0430-\u044f]+ | [\U00010000-\U0010FFFF])",
       {"привет", "\U00010000", "\U0010FFFF"},
       {"é", "\uFFFF"}},
      {R"(root ::= ("a" | "ab") ("c" | "bc"))", {"ac", "abc", "abbc"}, {"a", "abb"}},
      {R"(root ::= ""* "x"? ("")+)", {"", "x"}, {"xx"}},
  };
  for (const auto& e : examples) {
    CAPTURE(e.grammar);
    for (const auto& text : e.yes) CHECK_MESSAGE(accepts(e.grammar, text), text);
    for (const auto& text : e.no) CHECK_MESSAGE(!accepts(e.grammar, text), text);
  }
}

TEST_CASE("an error in a grammar is told with its place") {
  const std::pair<std::string, std::string> bad[] = {
      {"", "no rule 'root'"},
      {"root ::= other", "'other' is used and not given"},
      {"root ::= \"a\nroot ::= \"b\"", "line 1, column 12: a literal is not closed"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 9: rule 'root' is given twice"},
      {"root = \"a\"", "'::=' is expected"},
      {"root ::= (\"a\"", "')' is missing"},
      {"root ::= [a", "a class is not closed"},
      {"root ::= [z-a]", "ends before it begins"},
      {"root ::= \"\\q\"", "escape is not known"},
      {"root ::= \"\\ud800\"", "no character"},
      {"root ::= \"a\"{3,2}", "most is less"},
      {"root ::= \"a\"{99999}", "more than 10000"},
      {"root ::= $", "'$' begins nothing"},
      {"root ::= \"a\" )", "not part of the rule"},
      {"root ::= \"\xFF\"", "not UTF-8"},
  };
  for (const auto& [text, words] : bad)
    CHECK_MESSAGE(compile_problem(text).find(words) != std::string::npos,
                  text << " -> " << compile_problem(text));
}

TEST_CASE("what no answer could follow is refused: left recursion, and answers without an end") {
  CHECK(compile_problem("root ::= root \"a\" | \"b\"").find("'root' calls itself") != std::string::npos);
  CHECK(compile_problem("root ::= \"x\" | a\na ::= empty b\nb ::= a \"y\"\nempty ::= \"\"")
            .find("left recursion") != std::string::npos);
  CHECK(compile_problem("root ::= \"a\" root").find("no answer that ends") != std::string::npos);
  // One dead branch is cut off, and what is left goes on.
  CHECK(accepts("root ::= \"a\" loop | \"b\"\nloop ::= \"c\" loop", "b"));
  CHECK_FALSE(accepts("root ::= \"a\" loop | \"b\"\nloop ::= \"c\" loop", "a"));
}

TEST_CASE("grammars beyond the limits are refused with the limit, before they cost much") {
  CHECK(compile_problem("root ::= ((((\"a\"{1000}){1000}){1000}){1000})").find("400000 states") !=
        std::string::npos);
  CHECK(compile_problem("root ::= [ab]* \"a\" [ab]{60}").find("too large") != std::string::npos);
  CHECK(compile_problem("root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')'))
            .find("deeper than 100") != std::string::npos);
  CHECK(compile_problem(std::string(grammar_limits::max_text_bytes + 1, ' ')).find("bytes, at most") !=
        std::string::npos);
  std::string rules = "root ::= \"a\"\n";
  for (int i = 0; i < 10'001; ++i) rules += "r" + std::to_string(i) + " ::= \"a\"\n";
  CHECK(compile_problem(rules).find("more than 10000 rules") != std::string::npos);
}

TEST_CASE("any text and any set of characters can be written into a grammar") {
  const std::string text = "a\"b\\c\n\t\x01\x7F é日😀-[]^";
  CHECK(accepts("root ::= " + gbnf_literal(text), text));
  const auto odd = normalised({{'-', '-'}, {']', '^'}, {'"', '"'}, {'\\', '\\'}, {0, 9}, {0x1F600, 0x1F6FF}});
  const auto grammar = "root ::= " + gbnf_class(odd);
  for (const auto* c : {"-", "]", "^", "\"", "\\", "\t", "😀"}) CHECK_MESSAGE(accepts(grammar, c), c);
  for (const auto* c : {"[", "a", " ", "é"}) CHECK_MESSAGE(!accepts(grammar, c), c);
  CHECK(complement_of(complement_of(odd)) == odd);
}

TEST_CASE("a choice is one of its texts") {
  const auto grammar = grammar_of_choice({"red", "red wine", "\"quoted\""});
  REQUIRE(grammar);
  for (const auto* yes : {"red", "red wine", "\"quoted\""}) CHECK(accepts(*grammar, yes));
  CHECK_FALSE(accepts(*grammar, "red "));
  CHECK(problem_of(grammar_of_choice({})).find("at least one") != std::string::npos);
  CHECK(problem_of(grammar_of_choice({""})).find("empty") != std::string::npos);
}
