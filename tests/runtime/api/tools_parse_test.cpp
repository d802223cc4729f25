// tools, tool_choice and parallel_tool_calls of a chat, and how reasoning is wanted.

#include <doctest/doctest.h>

#include "runtime/api/openai.hpp"

using namespace mooncaf;

namespace {

const std::string f = R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";
const std::string g = R"({"type":"function","function":{"name":"g","description":"d"}})";

std::string body(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}";
}

chat_request chat(const std::string& fields) {
  const auto r = parse_chat(body(fields));
  REQUIRE_MESSAGE(r.has_value(), (r ? "" : r.error().detail));
  return *r;
}

std::string complaint(const std::string& fields) {
  const auto r = parse_chat(body(fields));
  return r ? std::string{} : r.error().detail;
}

}  // namespace

TEST_CASE("tools go to the template as they came, and their functions may be called") {
  const auto r = chat("\"tools\":[" + f + "," + g + "]");
  CHECK(r.tools == "[" + f + "," + g + "]");
  REQUIRE(r.functions.size() == 2);
  CHECK(r.functions[0].name == "f");
  CHECK(r.functions[0].parameters == R"({"type":"object"})");
  CHECK(r.functions[1].parameters.empty());
  CHECK(r.choice == tool_choice::automatic);
  CHECK(r.parallel_tool_calls);
  CHECK(chat("\"tools\":[]").tools.empty());
  CHECK(chat("\"tools\":null,\"tool_choice\":\"auto\"").functions.empty());
}

TEST_CASE("what may be called is the client's choice") {
  const auto tools = "\"tools\":[" + f + "," + g + "]";
  const auto none = chat(tools + R"(,"tool_choice":"none")");
  CHECK(none.tools.empty());
  CHECK(none.functions.empty());
  CHECK(chat(tools + R"(,"tool_choice":"required")").choice == tool_choice::required);
  CHECK_FALSE(chat(tools + R"(,"parallel_tool_calls":false)").parallel_tool_calls);
  const auto named = chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  CHECK(named.choice == tool_choice::required);
  CHECK_FALSE(named.parallel_tool_calls);
  REQUIRE(named.functions.size() == 1);
  CHECK(named.functions[0].name == "g");
  CHECK(named.tools == "[" + f + "," + g + "]");  // the prompt is the same whichever is named
}

TEST_CASE("tools and choices of another shape are refused at their place") {
  CHECK(complaint("\"tools\":{}").starts_with("tools: "));
  CHECK(complaint("\"tools\":[7]").starts_with("tools[0]: "));
  CHECK(complaint(R"("tools":[{"type":"web_search"}])").starts_with("tools[0]: "));
  CHECK(complaint("\"tools\":[" + f + "," + f + "]") == "tools[1].function.name: is given twice");
  CHECK(complaint(R"("tools":[{"type":"function","function":{"name":"a b"}}])")
            .starts_with("tools[0].function.name: "));
  CHECK(complaint(R"("tools":[{"type":"function","function":{"name":"a","parameters":[]}}])")
            .starts_with("tools[0].function.parameters: "));
  std::string many = "\"tools\":[" + f;
  for (int i = 0; i < 128; ++i) many += "," + f;
  CHECK(complaint(many + "]").starts_with("tools: must be a list of at most 128"));
  CHECK(complaint(R"("tool_choice":"required")") == "tool_choice: needs tools");
  const auto tools = "\"tools\":[" + f + "]";
  CHECK(complaint(tools + R"(,"tool_choice":"perhaps")").starts_with("tool_choice: must be"));
  CHECK(complaint(tools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})") ==
        "tool_choice: 'h' is not among the tools");
  CHECK(complaint(tools + R"(,"parallel_tool_calls":1)").starts_with("parallel_tool_calls: "));
}

TEST_CASE("reasoning is apart and told unless the client wants it otherwise") {
  CHECK(chat("\"n\":1").separate_reasoning);
  CHECK(chat("\"n\":1").include_reasoning);
  CHECK_FALSE(chat("\"separate_reasoning\":false").separate_reasoning);
  CHECK_FALSE(chat("\"include_reasoning\":false").include_reasoning);
}

TEST_CASE("what is told of a prompt, and how much of it is kept, is asked for in vLLM's words") {
  const auto r = chat(R"("prompt_logprobs":3,"truncate_prompt_tokens":100)");
  CHECK(r.prompt_logprobs == 3);
  CHECK(r.sampling.prompt_logprobs == 3);
  CHECK(r.truncate_prompt_tokens == 100);
  CHECK_FALSE(chat("\"n\":1").truncate_prompt_tokens.has_value());
  const auto both = parse_completion(R"({"prompt":"x","echo":true,"logprobs":5,"prompt_logprobs":1})");
  REQUIRE(both.has_value());
  CHECK(both->sampling.prompt_logprobs == 5);
  CHECK(both->echo_logprobs == 5);
  CHECK(both->prompt_logprobs == 1);
  CHECK(complaint("\"prompt_logprobs\":21").starts_with("prompt_logprobs: "));
  CHECK(complaint("\"truncate_prompt_tokens\":-2").starts_with("truncate_prompt_tokens: "));
}
