#include "runtime/grammar/json_schema.hpp"

#include <doctest/doctest.h>

#include "runtime/grammar/limits.hpp"
#include "tests/runtime/grammar/grammar_fixture.hpp"

using namespace mooncaf;
using testing::accepts;
using testing::problem_of;

namespace {

struct schema_example {
  std::string schema;
  std::vector<std::string> yes, no;
};

void check(const std::vector<schema_example>& examples) {
  for (const auto& e : examples) {
    const auto grammar = grammar_of_schema(e.schema);
    REQUIRE_MESSAGE(grammar.has_value(), e.schema << ": " << problem_of(grammar));
    CAPTURE(e.schema);
    for (const auto& text : e.yes) CHECK_MESSAGE(accepts(*grammar, text), text);
    for (const auto& text : e.no) CHECK_MESSAGE(!accepts(*grammar, text), text);
  }
}

}  // namespace

TEST_CASE("values have the types that a schema names") {
  check({{R"({"type":"string"})",
          {R"("")", R"("a\"b\\\né\u00e9")"},
          {"a", "\"\n\"", R"("\ud800")", R"("\x")", "1"}},
         {R"({"type":"integer"})", {"0", "-12"}, {"01", "1.5", "1e3", "+1"}},
         {R"({"type":"number"})", {"0.25", "-1e-3", "7"}, {".5", "1.", "--1"}},
         {R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"1", "\"true\""}},
         {R"({"type":"array","items":{"type":"integer"}})",
          {"[]", "[1,2]", "[ 1, 2 ]"},
          {"[1,]", "[\"a\"]", "[1 2]"}},
         {R"({"type":"object"})", {"{}", R"({"a":[1,{"b":null}]})"}, {"[]", "{\"a\"}"}},
         {"true", {"1", "{}", "\"x\""}, {"", "x"}},
         {R"({"description":"anything","x-own":1})", {"[null]", "1"}, {}},
         {R"({"enum":["red","gr\"een",3,null,{"a":[1]}]})",
          {R"("red")", R"("gr\"een")", "3", "null", R"({"a":[1]})"},
          {"red", R"("blue")"}},
         {R"({"const":"x"})", {R"("x")"}, {R"("y")"}},
         {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}}});
}

TEST_CASE("members come in the order of the schema, those that are required always") {
  check(
      {{R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["b","a"],
             "additionalProperties":false})",
        {R"({"b":1,"a":"x"})", "{\n  \"b\": 1,\n  \"a\": \"x\"\n}"},
        {R"({"a":"x","b":1})", R"({"b":1})", R"({"b":1,"a":"x","c":1})", "{}", R"({"b":1,"b":1})"}},
       {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"required":["b"]})",
        {R"({"b":1})", R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})", R"({"b":2,"c":3})"},
        {"{}", R"({"a":1})", R"({"a":1,"c":2})", R"({,"b":1})", R"({"b":1,})"}},
       {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})",
        {"{}", R"({"a":1})", R"({"b":1})"},
        {"[]"}},
       {R"({"type":"object","required":["x"]})", {R"({"x":[1]})"}, {"{}"}},
       {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
        {"{}", R"({"a":1,"b":true,"ab":false})", R"({"":true})", R"({"é":true})"},
        {R"({"a":true})", R"({"b":true,"a":true})", R"({"b":1})", R"({"\u0061":true})"}},
       {R"({"type":"object","additionalProperties":{"type":"integer"}})",
        {R"({"a":1,"b":2})"},
        {R"({"a":"x"})"}}});
}

TEST_CASE("counts and bounds are held") {
  check(
      {{R"({"type":"string","minLength":2,"maxLength":3})",
        {R"("ab")", R"("日本語")", R"("\n\"")"},
        {R"("a")", R"("abcd")"}},
       {R"({"type":"array","items":{"type":"null"},"minItems":2,"maxItems":3})",
        {"[null,null]", "[null,null,null]"},
        {"[]", "[null]", "[null,null,null,null]"}},
       {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"minItems":2})",
        {R"(["a",1])"},
        {R"(["a"])", R"(["a","b"])", R"(["a",1,2])"}},
       {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"}})",
        {"[]", R"(["a",1,2])"},
        {R"(["a","b"])"}},
       {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
       {R"({"type":"integer","minimum":-5,"maximum":123})", {"-5", "0", "99", "123"}, {"-6", "124", "1230"}},
       {R"({"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":12})", {"10", "11"}, {"9", "12"}},
       {R"({"type":"integer","minimum":250})", {"250", "1000", "999999"}, {"249", "99", "-250"}},
       {R"({"type":"number","minimum":0,"maximum":1})", {"0", "0.5", "1", "0.999"}, {"1.5", "-0.5", "2"}},
       {R"({"type":"number","exclusiveMinimum":0})", {"0.001", "1", "17.25"}, {"0", "0.0", "-1"}},
       {R"({"type":"number","maximum":-2})", {"-2", "-2.5", "-100"}, {"-1.5", "0", "2"}},
       {R"({"minimum":1.5,"maximum":3.5})", {"2", "2.5", "3"}, {"1", "4"}},
       {R"({"type":"number","minimum":3,"exclusiveMinimum":true})", {"4", "3.5"}, {"3"}}});
}

TEST_CASE("patterns and formats are held, with what JSON escapes") {
  check(
      {{R"({"type":"string","pattern":"^[a-z]+\\d?$"})", {R"("abc1")"}, {R"("Abc")", R"("abc12")"}},
       {R"({"pattern":"b+"})", {R"("abba")", R"("b")"}, {R"("aa")", R"("")"}},
       {R"({"pattern":"^\"\\\\\n$"})", {R"("\"\\\n")"}, {R"("x")"}},
       {R"({"type":"string","format":"date"})",
        {R"("2024-02-28")", R"("1999-12-31")"},
        {R"("2024-13-01")", R"("2023-02-30")"}},
       {R"({"type":"string","format":"date-time"})",
        {R"("2024-02-28T23:59:59Z")", R"("2024-01-01T00:00:00.5+02:00")"},
        {R"("2024-02-28")"}},
       {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123")"}},
       {R"({"type":"string","format":"ipv4"})", {R"("10.0.255.1")"}, {R"("256.1.1.1")"}}});
}

TEST_CASE("schemas may refer to one another, also round about, and be joined") {
  check(
      {{R"({"$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
             "required":["next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
        {R"({"next":null})", R"({"next":{"next":null}})"},
        {R"({"next":{}})", "null"}},
       {R"({"definitions":{"a/b":{"type":"null"}},"items":{"$ref":"#/definitions/a~1b"}})",
        {"[null]"},
        {"[1]"}},
       {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
       {R"({"anyOf":[{"type":"string"},{"type":"integer","minimum":5,"maximum":5}]})",
        {"\"a\"", "5"},
        {"4", "null"}},
       {R"({"allOf":[{"properties":{"a":{"type":"null"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
        {R"({"a":null,"b":null})"},
        {R"({"a":null})"}},
       {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
        {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
        {"{}"}},
       {R"({"oneOf":[{"properties":{"k":{"const":"x"},"v":{"type":"null"}},"required":["k"],"type":"object"},
                       {"properties":{"k":{"const":"y"}},"required":["k"],"type":"object"}]})",
        {R"({"k":"x","v":null})", R"({"k":"y"})"},
        {R"({"k":"z"})", R"({"k":"y","v":null})"}},
       {R"({"properties":{"never":false,"a":true}})", {"{}", R"({"a":1})"}, {R"({"never":1})"}}});
}

TEST_CASE("numbers are held between fractions, and to multiples") {
  check({{R"({"type":"number","minimum":0.25,"maximum":0.75})",
          {"0.25", "0.5", "0.75", "0.750", "0.250001"},
          {"0", "1", "0.2", "0.249999", "0.76", "0.7500001", "0.05"}},
         {R"({"type":"number","exclusiveMinimum":-1.5,"exclusiveMaximum":2.5})",
          {"-1.49", "-1", "0", "-0.5", "2.4", "2.499"},
          {"-1.5", "-1.50", "2.5", "3", "-2"}},
         {R"({"minimum":99.5})", {"99.5", "99.75", "100", "1234567.5"}, {"99", "99.25", "-100"}},
         {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
         {R"({"type":"integer","multipleOf":7,"minimum":-20,"maximum":30})",
          {"-14", "-7", "0", "7", "28"},
          {"-21", "1", "35", "13"}},
         {R"({"type":"integer","multipleOf":1200})", {"0", "1200", "-3600", "120000"}, {"120", "1000", "00"}},
         {R"({"type":"integer","multipleOf":100,"minimum":150,"maximum":350})",
          {"200", "300"},
          {"0", "100", "400"}},
         {R"({"multipleOf":0.01})", {"3.14", "-2.5", "7", "0.07"}, {"0.001", "1.234"}},
         {R"({"multipleOf":1.5})", {"4.5", "3", "-1.5", "0"}, {"1", "2.5", "1.55"}},
         {R"({"type":"integer","multipleOf":1.5})", {"3", "-6"}, {"2", "1.5"}},
         {R"({"type":"number","multipleOf":0.5,"minimum":0.75,"maximum":2})",
          {"1", "1.5", "2", "2.0"},
          {"0.5", "0.75", "2.5"}},
         {R"({"type":"number","minimum":-1e308,"maximum":1e308})", {"1", "-0.5"}, {"x"}}});
}

TEST_CASE("names of members are held to patterns, counts and one another") {
  check(
      {{R"({"type":"object","patternProperties":{"^n_":{"type":"integer"},"_s$":{"type":"string"}},"additionalProperties":false})",
        {"{}", R"({"n_a":1})", R"({"a_s":"x","n_":2})"},
        {R"({"n_a":"x"})", R"({"a":1})", R"({"n_s":1})", R"({"n_s":"x"})"}},
       {R"({"properties":{"n_own":{"maximum":5}},"patternProperties":{"^n_":{"type":"integer"}}})",
        {R"({"n_own":5})", R"({"n_x":7})"},
        {R"({"n_own":6})", R"({"n_own":"x"})", R"({"n_x":"x"})", R"({"other":1})"}},
       {R"({"propertyNames":{"pattern":"^[a-z]+$","maxLength":3},"additionalProperties":{"type":"null"}})",
        {"{}", R"({"abc":null,"d":null})"},
        {R"({"abcd":null})", R"({"A":null})", R"({"":null})"}},
       {R"({"propertyNames":{"enum":["a","b"]}})", {R"({"a":1,"b":2})"}, {R"({"c":1})"}},
       {R"({"properties":{"a":true,"b":true,"c":true},"minProperties":2,"additionalProperties":false})",
        {R"({"a":1,"c":2})", R"({"a":1,"b":2,"c":3})"},
        {"{}", R"({"b":1})"}},
       {R"({"properties":{"a":true,"b":true,"c":true},"required":["b"],"maxProperties":2})",
        {R"({"b":1})", R"({"a":1,"b":2})", R"({"b":1,"c":2})"},
        {R"({"a":1,"b":2,"c":3})", R"({"a":1})"}},
       {R"({"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"null"}})",
        {R"({"a":null})", R"({"a":null,"b":null})"},
        {"{}", R"({"a":null,"b":null,"c":null})"}},
       {R"({"maxProperties":0})", {"{}"}, {R"({"a":1})"}},
       {R"({"properties":{"card":{"type":"integer"},"address":{"type":"string"}},"dependentRequired":{"card":["address"]},"additionalProperties":false})",
        {"{}", R"({"address":"x"})", R"({"card":1,"address":"x"})"},
        {R"({"card":1})"}},
       {R"({"properties":{"a":true,"b":true},"dependencies":{"a":{"required":["b"]}}})",
        {R"({"b":1})", R"({"a":1,"b":2})"},
        {R"({"a":1})"}},
       {R"({"allOf":[{"properties":{"a":true},"additionalProperties":false},{"properties":{"a":{"type":"null"},"b":true}}]})",
        {"{}", R"({"a":null})"},
        {R"({"a":1})", R"({"b":1})"}}});
}

TEST_CASE("what a value is not, and what it is under a condition, is held") {
  check(
      {{R"({"type":"string","not":{"pattern":"^a"}})", {R"("ba")", R"("")"}, {R"("ab")", "1"}},
       {R"({"not":{"type":["string","number"]}})", {"{}", "null", "[1]"}, {R"("a")", "1", "1.5"}},
       {R"({"type":"string","not":{"enum":["x","yz"]}})", {R"("y")", R"("xx")"}, {R"("x")", R"("yz")"}},
       {R"({"type":"object","properties":{"a":{"type":"integer"}},"not":{"required":["a"]}})",
        {"{}"},
        {R"({"a":1})"}},
       {R"({"type":"integer","not":{"minimum":3}})", {"2", "-9"}, {"3", "4"}},
       {R"({"type":"object","properties":{"kind":{"enum":["box","ball"]},"edge":{"type":"integer"},"radius":{"type":"integer"}},
              "required":["kind"],"additionalProperties":false,
              "if":{"properties":{"kind":{"const":"box"}}},"then":{"required":["edge"]},"else":{"required":["radius"]}})",
        {R"({"kind":"box","edge":1})", R"({"kind":"ball","radius":2})",
         R"({"kind":"box","edge":1,"radius":2})"},
        {R"({"kind":"box"})", R"({"kind":"ball","edge":1})", R"({"kind":"box","radius":1})"}},
       {R"({"oneOf":[{"type":"integer"},{"minimum":2,"type":"number"}]})", {"1", "-3"}, {"2", "3", "1.5"}},
       {R"({"allOf":[{"minimum":1},{"minimum":2}]})", {"2", "2.5"}, {"1"}},
       {R"({"type":"string","pattern":"^a","maxLength":3,"minLength":2})",
        {R"("ab")", R"("abc")"},
        {R"("a")", R"("abcd")", R"("bb")"}},
       {R"({"type":"string","allOf":[{"pattern":"a"},{"pattern":"b"}]})",
        {R"("xaxb")", R"("ba")"},
        {R"("a")", R"("b")"}},
       {R"({"enum":[1,2,"x",3.5,[1,1]],"minimum":2,"uniqueItems":true})",
        {"2", R"("x")", "3.5"},
        {"1", "[1,1]"}},
       {R"({"$ref":"#/$defs/n","maximum":9,"$defs":{"n":{"type":"integer","minimum":5}}})",
        {"5", "9"},
        {"4", "10"}},
       {R"({"properties":{"v":{"type":"integer"},"next":{"allOf":[{"$ref":"#"},{"required":["v"]}]}},"required":["v"],"additionalProperties":false})",
        {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
        {R"({"v":1,"next":{}})"}}});
}

TEST_CASE("what no part of a schema speaks of is held where it is closed") {
  check(
      {{R"({"allOf":[{"properties":{"a":{"type":"null"}}}],"properties":{"b":true},"unevaluatedProperties":false})",
        {"{}", R"({"b":1,"a":null})"},
        {R"({"c":1})", R"({"a":1})"}},
       {R"({"anyOf":[{"properties":{"a":true},"required":["a"]},{"properties":{"b":true},"required":["b"]}],
              "unevaluatedProperties":{"type":"null"}})",
        {R"({"a":1})", R"({"b":1})", R"({"a":1,"c":null})"},
        {"{}", R"({"c":1,"a":1})"}},
       {R"({"type":"object","not":{"required":["x"],"properties":{"x":{"const":1}}},"unevaluatedProperties":false})",
        {"{}"},
        {R"({"x":2})", R"({"y":1})"}},
       {R"({"allOf":[{"prefixItems":[{"type":"null"}]}],"unevaluatedItems":false})",
        {"[]", "[null]"},
        {"[null,1]", "[1]"}}});
}

TEST_CASE("what an array contains, and that nothing comes twice in it, is held") {
  check({{R"({"items":{"type":"integer"},"contains":{"minimum":5}})",
          {"[5]", "[1,7,2]", "[1,2,9]"},
          {"[]", "[1,2]", R"(["x",5])"}},
         {R"({"type":"array","contains":{"const":1},"minContains":2,"maxContains":2,"items":{"enum":[1,2]}})",
          {"[1,1]", "[1,1,2]"},
          {"[1]", "[1,1,1]", "[2]", "[]"}},
         {R"({"type":"array","contains":{"const":1},"minContains":0})", {"[]", "[2]"}, {"1"}},
         {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true})",
          {"[]", R"(["b"])", R"(["c","a","b"])"},
          {R"(["a","a"])", R"(["a","b","a"])"}},
         {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":2,"maxItems":2})",
          {R"(["b","a"])"},
          {R"(["b"])", R"(["a","b","c"])", R"(["a","a"])"}},
         {R"({"type":"array","items":{"enum":[0,1,2,3,4,5,6,7,8,9]},"uniqueItems":true,"minItems":1})",
          {"[3]", "[0,5,9]"},
          {"[]", "[1,1]"}},
         {R"({"type":"array","maxItems":1,"uniqueItems":true})", {"[]", "[1]"}, {"[1,1]"}},
         {R"({"items":[{"type":"string"}],"additionalItems":{"type":"integer"}})",
          {R"(["a",1])"},
          {R"(["a","b"])"}}});
}

TEST_CASE("what cannot be held is refused by name and place") {
  const std::pair<std::string, std::string> bad[] = {
      {"{", "is not JSON"},
      {"[]", "at #: a schema is an object"},
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems'"},
      {R"({"type":"text"})", "'type' must be one of"},
      {R"({"$ref":"http://example.org/s.json"})", "only to a place in this schema"},
      {R"({"$ref":"#/$defs/none"})", "leads nowhere"},
      {R"({"$ref":"#"})", "left recursion"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "lookaround"},
      {R"({"type":"string","format":"iri"})", "'iri' is not known; known are date"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no answer that ends"},
      {R"({"type":"string","maxLength":100000})", "from 0 to 10000"},
      {R"({"enum":[]})", "at least one value"},
      {R"({"not":{}})", "no answer that ends"},
      {R"({"enum":[1],"minimum":3})", "no answer that ends"},
      {R"({"properties":{"a":{"not":{"format":"date"}}}})",
       "at #/properties/a/not: 'not' of 'format' is not supported"},
      {R"({"$dynamicRef":"#a"})", "'$dynamicRef' is not supported"},
      {R"({"type":"integer","multipleOf":257})", "'multipleOf' is supported up to 250"},
      {R"({"allOf":[{"format":"date"},{"format":"time"}]})", "'format' of more than one part"},
      {R"({"allOf":[{"$ref":"#"},{"type":"object"}]})", "nested too deeply"},
      {R"({"minimum":1e-30})", "minimum must be a number within"},
      {R"({"type":"array","contains":{},"uniqueItems":true})", "'contains' beside 'uniqueItems'"},
      {R"({"type":"object","\u0001layers":5})", "control character"},
      {"false", "no answer that ends"},
      {std::string(grammar_limits::max_source_bytes + 1, ' '), "bytes, at most"},
      {std::string(1000, '['), "nested too deeply"},
  };
  for (const auto& [schema, words] : bad) {
    auto problem = problem_of(grammar_of_schema(schema));
    if (problem.empty()) {
      grammar_cache cache{testing::text_of()};
      problem = problem_of(cache.find(*grammar_of_schema(schema)));
    }
    CHECK_MESSAGE(problem.find(words) != std::string::npos, schema.substr(0, 80) << " -> " << problem);
  }
}

TEST_CASE("a JSON object is any object and nothing else") {
  const auto grammar = grammar_of_json_object();
  for (const auto* yes : {"{}", R"({"a": {"b": [1, "x", true, null, -0.5e3]}})", "{\n  \"a\": 1\n}"})
    CHECK_MESSAGE(accepts(grammar, yes), yes);
  for (const auto* no : {"[]", "1", R"({"a":})", R"({a:1})", R"({"a":1} )", "{\"a\":1"})
    CHECK_MESSAGE(!accepts(grammar, no), no);
}
