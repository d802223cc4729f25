#include "runtime/tools/tool_grammar.hpp"

#include <doctest/doctest.h>

#include "tests/runtime/grammar/grammar_fixture.hpp"

using namespace mooncaf;
using testing::accepts;

namespace {

const std::string schema =
    R"({"$schema": "x", "type": "object", "properties": {"to": {"$ref": "#/$defs/town"}},
    "required": ["to"], "additionalProperties": false, "$defs": {"town": {"enum": ["Kiel", "Rom"]}}})";

}  // namespace

TEST_CASE("an answer that must be a call is one of an offered function, with arguments of its schema") {
  const tool_function functions[] = {{"go", schema}, {"stop", ""}};
  const auto one = grammar_of_tools(tool_format::hermes, functions, false);
  REQUIRE_MESSAGE(one.has_value(), (one ? "" : one.error().detail));
  const std::string go = "<tool_call>\n{\"name\": \"go\", \"arguments\": {\"to\": \"Kiel\"}}\n</tool_call>";
  CHECK(accepts(*one, go));
  CHECK(accepts(*one, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {\"x\": [1]}}\n</tool_call>"));
  CHECK_FALSE(
      accepts(*one, "<tool_call>\n{\"name\": \"go\", \"arguments\": {\"to\": \"Bonn\"}}\n</tool_call>"));
  CHECK_FALSE(accepts(*one, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
  CHECK_FALSE(accepts(*one, "Hello"));
  CHECK_FALSE(accepts(*one, go + "\n" + go));
  CHECK(accepts(*grammar_of_tools(tool_format::hermes, functions, true), go + "\n" + go));
  CHECK(accepts(*grammar_of_tools(tool_format::llama3, functions, true),
                R"({"name": "go", "parameters": {"to": "Rom"}}; {"name": "stop", "parameters": {}})"));
  CHECK(accepts(*grammar_of_tools(tool_format::mistral, functions, true),
                R"([{"name": "go", "arguments": {"to": "Rom"}}, {"name": "stop", "arguments": {}}])"));
}

TEST_CASE("a schema that cannot be held is refused with the function and the place") {
  const tool_function bad[] = {{"f", R"({"type": "object", "properties": {"a": {"$dynamicRef": "#b"}}})"}};
  const auto refused = grammar_of_tools(tool_format::hermes, bad, false);
  REQUIRE(!refused);
  CHECK(refused.error().detail.starts_with("f: at #/properties/a: '$dynamicRef'"));
}
