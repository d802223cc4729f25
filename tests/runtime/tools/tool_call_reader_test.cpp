#include "runtime/tools/tool_call_reader.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;

namespace {

struct whole {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  ///< name, arguments
  bool operator==(const whole&) const = default;
};

void add(whole& to, const answer_parts& parts) {
  to.content += parts.content;
  for (const auto& c : parts.calls) {
    if (!c.name.empty()) {
      CHECK(c.index == to.calls.size());
      to.calls.emplace_back(c.name, "");
    }
    REQUIRE(c.index + 1 == to.calls.size());
    to.calls.back().second += c.arguments;
  }
}

const std::vector<tool_function> offered{
    {"f", R"({"properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "o": {"anyOf": []}}})"},
    {"get_weather", ""}};

/// Reads `text` whole, by the byte, and in pieces of random lengths: all must give the same.
whole read(tool_format format, const std::string& text, bool forced = false, bool several = true) {
  std::mt19937 random(7);
  whole first;
  for (int round = 0; round < 12; ++round) {
    tool_call_reader reader{format, forced, several, offered};
    whole out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = round == 0 ? text.size() : round == 1 ? 1 : 1 + random() % 9;
      add(out, reader.feed(std::string_view{text}.substr(at, n)));
      at += n;
    }
    add(out, reader.finish());
    CHECK(reader.calls() == out.calls.size());
    if (round == 0) first = out;
    CHECK_MESSAGE(out == first, text, ": ", out.content, " | ", first.content);
  }
  return first;
}

std::string shown(const whole& w) {
  std::string out = w.content;
  for (const auto& [name, arguments] : w.calls) out += "|" + name + "(" + arguments + ")";
  return out;
}

}  // namespace

TEST_CASE("calls are taken out of an answer in each model's form") {
  struct row {
    tool_format format;
    const char* text;
    const char* expected;
  };
  using enum tool_format;
  const row rows[] = {
      {hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
       "|f({\"a\": [1, \"}\\\"\"]})"},
      {hermes,
       "I look. \n<tool_call>{\"arguments\": {}, \"name\": "
       "\"f\"}</tool_call>\n<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"t\":1}}",
       "I look.|f({})|get_weather({\"t\":1})"},
      {hermes, "<tool_call>{\"name\": \"f\"}</tool_call> done", " done|f({})"},
      {hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       "|f({\"a\": 1})"},
      {hermes, "<tool_call>{\"id\": [{}], \"name\": \"f\", \"arguments\": null, \"x\": 1}</tool_call>",
       "|f({})"},
      {hermes, "a < b <tool> <tool_cal", "a < b <tool> <tool_cal"},
      {hermes, " plain \n", " plain \n"},
      {llama3, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "|f({\"a\": 1})"},
      {llama3,
       "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": {}}",
       "|f({})|get_weather({})"},
      {llama3, "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"q\": \"\xC3\xA9\"}}",
       "|f({\"q\": \"\xC3\xA9\"})"},
      {llama3, "Use {\"name\": \"f\"}", "Use {\"name\": \"f\"}"},
      {llama3, "<|python_tag|>search(1)", "<|python_tag|>search(1)"},
      {mistral,
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\", "
       "\"arguments\": {}}]",
       "|f({\"a\": 1})|get_weather({})"},
      {mistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]", "|f({})"},
      {mistral, "Well.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather[CALL_ID]x12[ARGS]{}",
       "Well.|f({\"a\": 1})|get_weather({})"},
      {mistral, "[TOOL_CALL", "[TOOL_CALL"},
      {granite, "<|tool_call|> [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\"}]",
       "|f({\"a\": 1})|get_weather({})"},
      {granite, "So.<tool_call>[{\"name\": \"f\", \"arguments\": {}}]", "So.|f({})"},
      {phi4, "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "|f({\"a\": 1})"},
      {phi4, "Import functools [sic] first", "Import functools [sic] first"},
      {gpt_oss, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
       "|f({\"a\": 1})"},
      {gpt_oss, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "|f({})"},
      {gpt_oss,
       "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.f"
       "<|channel|>commentary <|constrain|>json<|message|>{\"a\": 1}",
       "I look.|f({\"a\": 1})"},
      {gpt_oss,
       "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Then. ",
       "First.\n\nThen. "},
      {gpt_oss, "Plain, to=functions.f is no call", "Plain, to=functions.f is no call"},
      {gpt_oss, "to=functions.f is no call", "to=functions.f is no call"},
      {gpt_oss, "<|channel|>commentary to=functions.none<|message|>{}",
       "<|channel|>commentary to=functions.none<|message|>{}"},
      {gpt_oss, "<|channel|>commentary to=browser.open<|message|>{}",
       "<|channel|>commentary to=browser.open<|message|>{}"},
      {gpt_oss, "Well.<|start|>assistant<|channel|>comm", "Well."},
      {deepseek,
       "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Well.|f({\"a\": 1})|get_weather({})"},
      {deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
       "1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "|f({\"a\": 1})"},
      // The marks as special tokens, which are hidden but for those that a reader has to see.
      {deepseek, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 2}",
       "|f({})|f({\"a\": 2})"},
  };
  for (const auto& r : rows) {
    INFO(r.text);
    CHECK(shown(read(r.format, r.text)) == r.expected);
  }
}

TEST_CASE("what only looks like a call stays text, as it was written") {
  for (const std::string text :
       {"<tool_call>not JSON", "<tool_call>{\"name\": 7}</tool_call>", "<tool_call>{\"name\": \"f\"",
        "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>", "<tool_call>"})
    CHECK(shown(read(tool_format::hermes, text)) == text);
  for (const std::string text :
       {"{\"town\": \"Kiel\"}", "{\"name\": \"Bob\", \"age\": 3}", "{", "[1]", "{\"name\" 1}"})
    CHECK(shown(read(tool_format::llama3, text)) == text);
  for (const std::string text : {"[TOOL_CALLS]", "[TOOL_CALLS]{}", "[TOOL_CALLS][7]"})
    CHECK(shown(read(tool_format::mistral, text)) == text);
  for (const std::string text :
       {"<|tool_call|> none", "<|tool_call|>", "<|tool_call|>[{\"name\": \"other\"}]", "<|tool_cal"})
    CHECK(shown(read(tool_format::granite, text)) == text);
  for (const std::string text : {"functools", "functools[x]", "functools[{\"name\": 1}]"})
    CHECK(shown(read(tool_format::phi4, text)) == text);
  CHECK(shown(read(tool_format::deepseek, "<｜tool▁call▁begin｜>f{}")) == "<｜tool▁call▁begin｜>f{}");
}

TEST_CASE("an answer that was held to calls needs no marker, and one call is all where one is wanted") {
  CHECK(shown(read(tool_format::mistral, R"([{"name":"f","arguments":{}}])", true)) == "|f({})");
  const std::string two =
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"f\"}</tool_call>";
  CHECK(shown(read(tool_format::hermes, two, false, false)) == "|f({})");
  tool_call_reader one{tool_format::hermes, false, false, {{"f", ""}}};
  one.feed("<tool_call>{\"name\": \"f\", \"arguments\": {}");
  CHECK_FALSE(one.complete());
  one.feed("}");
  CHECK(one.complete());
}

TEST_CASE("arguments are passed on as they come, once the name is known") {
  tool_call_reader reader{tool_format::hermes, false, true, {{"f", ""}}};
  CHECK(reader.feed("<tool_call>{\"name\": \"f\", \"argu").calls.empty());
  const auto begun = reader.feed("ments\": {\"a\": \"x");
  REQUIRE(begun.calls.size() == 1);
  CHECK(begun.calls[0].name == "f");
  CHECK(begun.calls[0].arguments == "{\"a\": \"x");
  const auto more = reader.feed("yz");
  REQUIRE(more.calls.size() == 1);
  CHECK(more.calls[0].name.empty());
  CHECK(more.calls[0].arguments == "yz");
}

TEST_CASE("of a name or arguments that come twice the first count, for they may have been passed on") {
  const auto llama = [](const char* text) { return shown(read(tool_format::llama3, text)); };
  CHECK(llama(R"({"name": "f", "parameters": {"a": 1}, "parameters": 2})") == R"(|f({"a": 1}))");
  CHECK(llama(R"({"parameters": 1, "name": "f", "name": "get_weather"})") == "|f(1)");
  // Found by fuzzing: what is no JSON is no argument.
  const char* broken = R"({"name": "f", "parameters":`{"", "parameters": 1}})";
  CHECK(llama(broken) == broken);
}

TEST_CASE("calls as Python writes them become JSON, and a list that is none stays text") {
  const auto said = [](const char* text) { return shown(read(tool_format::pythonic, text)); };
  CHECK(said("[f(n=3, s=\"a)\\n'b'\", ok=True), get_weather()]") ==
        R"(|f({"n":3,"s":"a)\n'b'","ok":true})|get_weather({}))");
  CHECK(said(" <|python_start|>[f(o={'k': [1, -2.5, None], 'm': (\"x\",)})]") ==
        R"(|f({"o":{"k":[1,-2.5,null],"m":["x"]}}))");
  CHECK(said("[f(s='caf\\u00e9')] and then") == R"(and then|f({"s":"café"}))");
  for (const char* text :
       {"[1, 2] is a list", "[other(a=1)]", "[f(a=b)]", "[f(1)]", "[]", "no [f(a=1)]", "[f(n=0x)]"})
    CHECK(said(text) == text);
  CHECK(said("[f(n=1") == "[f(n=1");
  CHECK(shown(read(tool_format::pythonic, R"([{"name": "f", "arguments": {"n": 1}}])", true)) ==
        R"(|f({"n": 1}))");
  CHECK(shown(read(tool_format::pythonic, "[f(n=1), f(n=2)]", false, false)) == R"(|f({"n":1}))");
  // As deep as it likes, a literal is read or refused, and costs no stack.
  const auto deep = "[f(a=" + std::string(100'000, '[') + ")]";
  CHECK(read(tool_format::pythonic, deep).calls.empty());
}

TEST_CASE("Qwen3-Coder's tags become JSON, each value as the function's schema has it") {
  const auto said = [](const char* text) { return shown(read(tool_format::qwen3_coder, text)); };
  CHECK(
      said(
          "I "
          "look.\n<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\n4\n</parameter>\n"
          "</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n</function>\n</tool_call>") ==
      R"(I look.|f({"n": 3, "s": "4"})|get_weather({}))");
  CHECK(said("<function=f><parameter=o>[1, {\"a\": null}]</parameter><parameter=s>if a < b:\n  "
             "\"x\"</parameter></function>") == R"(|f({"o": [1,{"a":null}], "s": "if a < b:\n  \"x\""}))");
  // What is not what the schema says is passed on as text; a call that is cut keeps its whole parameters.
  CHECK(said("<tool_call><function=f><parameter=n>many</parameter><parameter=s>half") ==
        R"x(|f({"n": "many"))x");
  for (const char* text :
       {"<tool_call>{}</tool_call>", "<tool_call><function=other><parameter=n>1</parameter>",
        "<function=", "a <b> <tool_cal", "<function f>"})
    CHECK(said(text) == text);
  CHECK(said("<function=f>what</function>") == "what</function>|f({})");
  CHECK(shown(read(tool_format::qwen3_coder, R"([{"name": "f", "arguments": {"n": 1}}])", true)) ==
        R"(|f({"n": 1}))");
}

TEST_CASE("wherever an answer is cut, the same is read of it") {
  // Found by fuzzing, in forms that `read` cuts: a function that was not offered, whose arguments hold a
  // mark; a name as long as no name is; the same tag twice with white space between.
  const std::string hidden =
      R"(<tool_call>{"name": "other", "arguments": {"a": "<tool_call>{\"name\": \"f\"}"}}</tool_call>)";
  CHECK(read(tool_format::hermes, hidden).calls.empty());
  const std::string endless(250, 'n');
  CHECK(read(tool_format::mistral, "[TOOL_CALLS]" + endless + "{}").content ==
        "[TOOL_CALLS]" + endless + "{}");
  CHECK(read(tool_format::deepseek, "<｜tool▁call▁begin｜>" + endless + "<｜tool▁sep｜>f{}").calls.empty());
  const std::string twice = "<|python_tag|>" + std::string(15, '\r') + "<|python_tag|>x";
  CHECK(read(tool_format::llama3, twice).content == "<|python_tag|>x");
}

TEST_CASE("a template's own words tell the form") {
  CHECK(tool_format_of("… <tool_call> …") == tool_format::hermes);
  CHECK(tool_format_of("[TOOL_CALLS]") == tool_format::mistral);
  CHECK(tool_format_of("<|tool_call|>") == tool_format::granite);
  CHECK(tool_format_of("<｜tool▁call▁begin｜>") == tool_format::deepseek);
  CHECK(tool_format_of("<tool_call>\n<function=") == tool_format::qwen3_coder);
  CHECK(tool_format_of("[func_name1(params_name1=params_value1)]") == tool_format::pythonic);
  // GLM's tags are not read.
  CHECK_FALSE(tool_format_of("<tool_call>{name}<arg_key>").has_value());
  CHECK(tool_format_of("<|start_header_id|> tool_calls \"parameters\"") == tool_format::llama3);
  CHECK_FALSE(tool_format_of("<|im_start|>").has_value());
}

TEST_CASE("deep and endless calls end as text") {
  tool_call_reader deep{tool_format::hermes, false, true, {{"f", ""}}};
  deep.feed("<tool_call>{\"x\": " + std::string(100'000, '['));
  CHECK(deep.calls() == 0);
}

TEST_CASE("of an answer that is held to calls and was cut nothing is content") {
  using enum tool_format;
  CHECK(shown(read(hermes, "<tool_call>\n{\"na", true)).empty());
  CHECK(shown(read(hermes, "<tool_c", true)).empty());
  CHECK(shown(read(hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\"", true)) == "|f({\"a\")");
  CHECK(shown(read(hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>",
                   true)) == "|f({})");
  for (const auto format : {mistral, granite, phi4, deepseek, pythonic, qwen3_coder, gpt_oss})
    CHECK_MESSAGE(shown(read(format, format == phi4 ? "functools[{\"na" : "[{\"na", true)).empty(),
                  std::string{to_string(format)});
  CHECK(shown(read(llama3, "{\"na", true)).empty());
  // Where the model was free, what it began to say is what it said.
  CHECK(shown(read(hermes, "<tool_call>\n{\"na")) == "<tool_call>\n{\"na");
}
