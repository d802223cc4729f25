// tools, tool_choice and parallel_tool_calls of a tools_chat, and how reasoning is wanted.

#include <doctest/doctest.h>

#include "runtime/api/openai.hpp"
#include "runtime/api/tools_as_text.hpp"

using namespace mooncaf;

namespace {

const std::string f = R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";
const std::string g = R"({"type":"function","function":{"name":"g","description":"d"}})";

std::string body(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}";
}

chat_request tools_chat(const std::string& fields) {
  const auto r = parse_chat(body(fields));
  REQUIRE_MESSAGE(r.has_value(), (r ? "" : r.error().detail));
  return *r;
}

std::string tools_complaint(const std::string& fields) {
  const auto r = parse_chat(body(fields));
  return r ? std::string{} : r.error().detail;
}

}  // namespace

TEST_CASE("tools go to the template as they came, and their functions may be called") {
  const auto r = tools_chat("\"tools\":[" + f + "," + g + "]");
  CHECK(r.tools == "[" + f + "," + g + "]");
  REQUIRE(r.functions.size() == 2);
  CHECK(r.functions[0].name == "f");
  CHECK(r.functions[0].parameters == R"({"type":"object"})");
  CHECK(r.functions[1].parameters.empty());
  CHECK(r.choice == tool_choice::automatic);
  CHECK(r.parallel_tool_calls);
  CHECK(tools_chat("\"tools\":[]").tools.empty());
  CHECK(tools_chat("\"tools\":null,\"tool_choice\":\"auto\"").functions.empty());
}

TEST_CASE("what may be called is the client's choice") {
  const auto tools = "\"tools\":[" + f + "," + g + "]";
  const auto none = tools_chat(tools + R"(,"tool_choice":"none")");
  CHECK(none.tools.empty());
  CHECK(none.functions.empty());
  CHECK(tools_chat(tools + R"(,"tool_choice":"required")").choice == tool_choice::required);
  CHECK_FALSE(tools_chat(tools + R"(,"parallel_tool_calls":false)").parallel_tool_calls);
  const auto named = tools_chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  CHECK(named.choice == tool_choice::required);
  CHECK_FALSE(named.parallel_tool_calls);
  REQUIRE(named.functions.size() == 1);
  CHECK(named.functions[0].name == "g");
  CHECK(named.tools == "[" + f + "," + g + "]");  // the prompt is the same whichever is named
}

TEST_CASE("tools and choices of another shape are refused at their place") {
  CHECK(tools_complaint("\"tools\":{}").starts_with("tools: "));
  CHECK(tools_complaint("\"tools\":[7]").starts_with("tools[0]: "));
  CHECK(tools_complaint(R"("tools":[{"type":"web_search"}])").starts_with("tools[0]: "));
  CHECK(tools_complaint("\"tools\":[" + f + "," + f + "]") == "tools[1].function.name: is given twice");
  CHECK(tools_complaint(R"("tools":[{"type":"function","function":{"name":"a b"}}])")
            .starts_with("tools[0].function.name: "));
  CHECK(tools_complaint(R"("tools":[{"type":"function","function":{"name":"a","parameters":[]}}])")
            .starts_with("tools[0].function.parameters: "));
  std::string many = "\"tools\":[" + f;
  for (int i = 0; i < 128; ++i) many += "," + f;
  CHECK(tools_complaint(many + "]").starts_with("tools: must be a list of at most 128"));
  CHECK(tools_complaint(R"("tool_choice":"required")") == "tool_choice: needs tools");
  const auto tools = "\"tools\":[" + f + "]";
  CHECK(tools_complaint(tools + R"(,"tool_choice":"perhaps")").starts_with("tool_choice: must be"));
  CHECK(tools_complaint(tools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})") ==
        "tool_choice: 'h' is not among the tools");
  CHECK(tools_complaint(tools + R"(,"parallel_tool_calls":1)").starts_with("parallel_tool_calls: "));
}

TEST_CASE("reasoning is apart and told unless the client wants it otherwise") {
  CHECK(tools_chat("\"n\":1").separate_reasoning);
  CHECK(tools_chat("\"n\":1").include_reasoning);
  CHECK_FALSE(tools_chat("\"separate_reasoning\":false").separate_reasoning);
  CHECK_FALSE(tools_chat("\"include_reasoning\":false").include_reasoning);
}

TEST_CASE("what is told of a prompt, and how much of it is kept, is asked for in vLLM's words") {
  const auto r = tools_chat(R"("prompt_logprobs":3,"truncate_prompt_tokens":100)");
  CHECK(r.prompt_logprobs == 3);
  CHECK(r.sampling.prompt_logprobs == 3);
  CHECK(r.truncate_prompt_tokens == 100);
  CHECK_FALSE(tools_chat("\"n\":1").truncate_prompt_tokens.has_value());
  const auto both = parse_completion(R"({"prompt":"x","echo":true,"logprobs":5,"prompt_logprobs":1})");
  REQUIRE(both.has_value());
  CHECK(both->sampling.prompt_logprobs == 5);
  CHECK(both->echo_logprobs == 5);
  CHECK(both->prompt_logprobs == 1);
  CHECK(tools_complaint("\"prompt_logprobs\":21").starts_with("prompt_logprobs: "));
  CHECK(tools_complaint("\"truncate_prompt_tokens\":-2").starts_with("truncate_prompt_tokens: "));
}

TEST_CASE("a turn that is calls alone says whether its content was empty, null or absent") {
  const auto bare = [](const std::string& content) {
    const auto r = parse_chat(
        R"({"messages":[{"role":"user","content":"q"},{"role":"assistant",)" + content +
        R"("tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]})");
    REQUIRE(r.has_value());
    CHECK(r->messages[1].content.empty());
    return r->messages[1].bare;
  };
  CHECK(bare("\"content\":\"\",") == bare_content::empty);
  CHECK(bare("\"content\":null,") == bare_content::null);
  CHECK(bare("") == bare_content::absent);
}

TEST_CASE("tools become text of the messages, and calls and results go back into it") {
  chat_prompt talk;
  talk.tools = "[" + f + "]";
  talk.messages = {{"system", "Be kind.", {}, {}, {}, {}},
                   {"user", "q", {}, {}, {}, {}},
                   {"assistant", "", {{"1", "f", R"({"a": "x"})"}, {"2", "f", "no JSON"}}, {}, {}, {}},
                   {"tool", "7", {}, "1", {}, {}},
                   {"tool", "8", {}, "2", {}, {}},
                   {"user", "and?", {}, {}, {}, {}}};
  CHECK(speaks_of_tools(talk));
  const auto said = tools_as_text(talk, true);
  CHECK_FALSE(speaks_of_tools(said));
  REQUIRE(said.messages.size() == 4);
  CHECK(said.messages[0].content.starts_with("Be kind.\n\n"));
  CHECK(said.messages[0].content.find("<tools>\n" + f + "\n</tools>") != std::string::npos);
  CHECK(said.messages[2].content ==
        "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":\"x\"}}\n</tool_call>\n"
        "<tool_call>\n{\"name\":\"f\",\"arguments\":\"no JSON\"}\n</tool_call>");
  CHECK(said.messages[3].role == "user");
  CHECK(said.messages[3].content ==
        "<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</tool_response>\nand?");
  // A template that knows no system role gets the list in front of the first question.
  const auto without = tools_as_text({{{"user", "q", {}, {}, {}, {}}}, true, false, {}, talk.tools}, false);
  REQUIRE(without.messages.size() == 1);
  CHECK(without.messages[0].content.ends_with("\n\nq"));
  const auto fresh = tools_as_text({{{"user", "q", {}, {}, {}, {}}}, true, false, {}, talk.tools}, true);
  REQUIRE(fresh.messages.size() == 2);
  CHECK(fresh.messages[0].role == "system");
  CHECK(tools_as_text({{{"user", "q", {}, {}, {}, {}}}, true, false, {}, {}}, true).messages.size() == 1);
}
