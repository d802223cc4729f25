// Anthropic's /v1/messages and OpenAI's /v1/responses: bodies become the requests of a chat, answers the
// events that their clients read.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "runtime/api/messages_api.hpp"
#include "runtime/api/responses_api.hpp"
#include "tests/runtime/api/piece.hpp"

using namespace mooncaf;
using mooncaf::test::piece;
using json = nlohmann::json;

namespace {

chat_request messages_of(const std::string& fields) {
  const auto r = parse_messages("{" + fields + "}");
  REQUIRE_MESSAGE(r.has_value(), (r ? "" : r.error().detail));
  return *r;
}

std::string message_complaint(const std::string& fields) {
  const auto r = parse_messages("{" + fields + "}");
  return r ? std::string{} : r.error().detail;
}

response_request response_of(const std::string& fields) {
  const auto r = parse_responses("{" + fields + "}");
  REQUIRE_MESSAGE(r.has_value(), (r ? "" : r.error().detail));
  return *r;
}

std::string response_complaint(const std::string& fields) {
  const auto r = parse_responses("{" + fields + "}");
  return r ? std::string{} : r.error().detail;
}

const std::string hi = R"("max_tokens":9,"messages":[{"role":"user","content":"hi"}])";

/// Named events as (name, data); each must say its own name.
std::vector<json> events_of(const std::string& text) {
  std::vector<json> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find("\n\n", at);
    const auto lines = text.substr(at, end - at);
    REQUIRE(lines.starts_with("event: "));
    const auto name = lines.substr(7, lines.find('\n') - 7);
    out.push_back(json::parse(lines.substr(lines.find("\ndata: ") + 7)));
    CHECK(out.back()["type"] == name);
    at = end + 2;
  }
  return out;
}

choice_text thought(std::string text) {
  choice_text c;
  c.reasoning = std::move(text);
  return c;
}

choice_text call(std::string id, std::string name, std::string arguments) {
  choice_text c;
  c.calls.push_back({0, std::move(id), std::move(name), std::move(arguments)});
  return c;
}

const answer_head head{api_kind::chat, "msg_1", 1700000000, "m"};

}  // namespace

TEST_CASE("a request of Anthropic's becomes the conversation that it is") {
  const auto r = messages_of(R"("model":"m","max_tokens":9,"top_k":3,"stop_sequences":["x"],"stream":true,
    "system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],
    "messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"text","text":"say"},
        {"type":"tool_use","id":"1","name":"f","input":{"a":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"7"}]},
        {"type":"text","text":"and?"}]}])");
  CHECK(r.sampling.max_tokens == 9);
  CHECK(r.sampling.top_k == 3);
  CHECK(r.sampling.stop == std::vector<std::string>{"x"});
  CHECK(r.stream);
  REQUIRE(r.messages.size() == 5);
  CHECK(r.messages[0].role == "system");
  CHECK(r.messages[0].content == "a\nb");
  CHECK(r.messages[2].content == "say");
  CHECK(r.messages[2].reasoning_content == "t");
  REQUIRE(r.messages[2].tool_calls.size() == 1);
  CHECK(r.messages[2].tool_calls[0].arguments == R"({"a":1})");
  CHECK(r.messages[3].role == "tool");
  CHECK(r.messages[3].tool_call_id == "1");
  CHECK(r.messages[3].content == "7");
  CHECK(r.messages[4].content == "and?");
  CHECK(r.add_generation_prompt);
}

TEST_CASE("marks say how much of the prompt is kept, and for how long") {
  const auto r = messages_of(R"("max_tokens":9,
    "tools":[{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral","ttl":"1h"}}],
    "system":[{"type":"text","text":"abc","cache_control":{"type":"ephemeral"}},{"type":"text","text":"de"}],
    "messages":[{"role":"user","content":[{"type":"text","text":"fg"},{"type":"text","text":"h","cache_control":{"type":"ephemeral"}}]},
      {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"7","cache_control":{"type":"ephemeral"}}]}])");
  REQUIRE(r.keep.size() == 4);
  const auto same = [&](std::size_t i, std::uint32_t messages, std::size_t bytes, int seconds) {
    CHECK(r.keep[i].messages == messages);
    CHECK(r.keep[i].bytes == bytes);
    CHECK(r.keep[i].ttl == std::chrono::seconds(seconds));
  };
  same(0, 0, std::string::npos, 3600);
  same(1, 1, 3, 300);
  same(2, 2, 4, 300);
  same(3, 4, std::string::npos, 300);
  const auto whole = messages_of(
      R"("max_tokens":9,"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"q"}])");
  REQUIRE(whole.keep.size() == 1);
  CHECK(whole.keep[0].messages == prefix_mark::all);
  const auto refused = [](const std::string& control) {
    const auto r = parse_messages(
        R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"q","cache_control":)" +
            control + "}]}]}",
        false);
    return r ? std::string{} : r.error().detail;
  };
  CHECK(refused(R"({"type":"ephemeral"})").empty());
  CHECK(refused(R"({"type":"for ever"})") ==
        "messages[0].content[0].cache_control: must be of type ephemeral");
  CHECK(refused(R"({"type":"ephemeral","ttl":"2h"})") ==
        "messages[0].content[0].cache_control.ttl: must be 5m or 1h");
  CHECK(refused("7").find("cache_control") != std::string::npos);
}

TEST_CASE("a turn that is calls alone leaves its content to the template") {
  const auto r = messages_of(R"("max_tokens":9,"messages":[{"role":"user","content":"q"},
    {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"7"}]}])");
  REQUIRE(r.messages.size() == 3);
  CHECK(r.messages[1].bare == bare_content::unsaid);
  CHECK(r.messages[0].bare == bare_content::empty);
  const auto o = response_of(R"("input":[{"role":"user","content":"q"},
    {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
    {"type":"function_call_output","call_id":"1","output":"7"}])");
  REQUIRE(o.messages.size() == 3);
  CHECK(o.messages[1].bare == bare_content::unsaid);
}

TEST_CASE("the form of an answer is Anthropic's output_config, or its older name") {
  const std::string form =
      R"({"type":"json_schema","schema":{"type":"object","properties":{"a":{"type":"null"}}}})";
  const auto r = messages_of(hi + R"(,"output_config":{"effort":"low","format":)" + form + "}");
  CHECK(r.form_field == "output_config");
  CHECK(r.sampling.grammar.find("null") != std::string::npos);
  CHECK(messages_of(hi + R"(,"output_format":)" + form).form_field == "output_format");
  CHECK(messages_of(hi + R"(,"output_config":{"effort":"low"})").form_field.empty());
  CHECK(messages_of(hi + R"(,"output_config":{"format":null})").form_field.empty());
  CHECK(message_complaint(hi + R"(,"output_config":7)") == "output_config: must be an object");
  CHECK(message_complaint(hi + R"(,"output_config":{"format":{"type":"xml"}})")
            .starts_with("output_config: format must be"));
  CHECK(
      message_complaint(hi + R"(,"output_config":{"format":{"type":"json_schema","schema":{"type":"text"}}})")
          .starts_with("output_config: format: at #: 'type' must be"));
  CHECK(message_complaint(hi + R"(,"output_config":{"format":)" + form + R"(},"output_format":)" + form)
            .starts_with("output_format: asks for a form"));
}

TEST_CASE("a last message of the assistant is the beginning of the answer") {
  const auto r = messages_of(
      R"("max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"It is"}])");
  CHECK(r.continue_final_message);
  CHECK_FALSE(r.add_generation_prompt);
}

TEST_CASE("tools of Anthropic's form are offered as functions") {
  const std::string tools =
      R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"name":"g","input_schema":{}}])";
  const auto offered = messages_of(hi + tools);
  CHECK(json::parse(offered.tools) ==
        json::parse(
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},
                {"type":"function","function":{"name":"g","parameters":{}}}])"));
  CHECK(offered.choice == tool_choice::automatic);
  CHECK(offered.parallel_tool_calls);
  CHECK(messages_of(hi + tools + R"(,"tool_choice":{"type":"any"})").choice == tool_choice::required);
  CHECK_FALSE(messages_of(hi + tools + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})")
                  .parallel_tool_calls);
  const auto named = messages_of(hi + tools + R"(,"tool_choice":{"type":"tool","name":"g"})");
  REQUIRE(named.functions.size() == 1);
  CHECK(named.functions[0].name == "g");
  CHECK(messages_of(hi + tools + R"(,"tool_choice":{"type":"none"})").tools.empty());
  CHECK(messages_of(hi + R"(,"thinking":{"type":"disabled"})").variables.find("\"enable_thinking\": false") !=
        std::string::npos);
}

TEST_CASE("what a message cannot be is refused at its place") {
  const auto of = [](const std::string& message) {
    return message_complaint(R"("max_tokens":9,"messages":[)" + message + "]");
  };
  CHECK(message_complaint(R"("messages":[{"role":"user","content":"x"}])") == "max_tokens: is required");
  CHECK(message_complaint(R"("max_tokens":9)") == "messages: is required");
  CHECK(message_complaint(R"("max_tokens":9,"messages":[])").starts_with("messages: must be a list"));
  CHECK(of(R"({"role":"system","content":"x"})").starts_with("messages[0].role: "));
  CHECK(of(R"({"role":"user"})").starts_with("messages[0].content: "));
  CHECK(of(R"({"role":"user","content":7})").starts_with("messages[0].content: "));
  CHECK(of(R"({"role":"user","content":[{"type":"image","source":{}}]})") ==
        "messages[0].content[0]: is not supported: type 'image' of the user");
  CHECK(of(R"({"role":"user","content":[{"type":"text"}]})").starts_with("messages[0].content[0].text: "));
  CHECK(of(R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":7}]})")
            .starts_with("messages[0].content[0].input: "));
  CHECK(message_complaint(hi + R"(,"tools":[{"type":"web_search_20250305","name":"web_search"}])")
            .starts_with("tools[0]: "));
  CHECK(message_complaint(hi + R"(,"tools":[{"name":"f"}])").starts_with("tools[0].input_schema: "));
  CHECK(message_complaint(hi + R"(,"tool_choice":{"type":"perhaps"})").starts_with("tool_choice: "));
  CHECK(message_complaint(hi + R"(,"thinking":{"type":"deep"})").starts_with("thinking: "));
  CHECK(parse_messages(R"({"messages":[{"role":"user","content":"x"}]})", true).has_value());
}

TEST_CASE("a message has blocks in their order, and says why it ended") {
  auto c = piece("Hello", "stop");
  c.reasoning = "hm";
  c.stopped_by = "END";
  const auto body = json::parse(messages_writer(head, 7)->whole({c}, {100, 64, 5, 0}));
  CHECK(body["type"] == "message");
  CHECK(body["role"] == "assistant");
  CHECK(body["content"][0]["thinking"] == "hm");
  CHECK(body["content"][1] == json::parse(R"({"type":"text","text":"Hello"})"));
  CHECK(body["stop_reason"] == "stop_sequence");
  CHECK(body["stop_sequence"] == "END");
  CHECK(body["usage"]["input_tokens"] == 36);
  CHECK(body["usage"]["cache_read_input_tokens"] == 64);
  CHECK(body["usage"]["output_tokens"] == 5);
  usage_counts kept{100, 64, 5, 0};
  kept.created_tokens = 30;
  kept.created_long_tokens = 10;
  const auto usage = json::parse(messages_writer(head, 7)->whole({c}, kept))["usage"];
  CHECK(usage["input_tokens"] == 6);
  CHECK(usage["cache_creation_input_tokens"] == 30);
  CHECK(usage["cache_creation"]["ephemeral_5m_input_tokens"] == 20);
  CHECK(usage["cache_creation"]["ephemeral_1h_input_tokens"] == 10);
  auto called = call("abc", "f", R"({"a":1})");
  called.finish_reason = "tool_calls";
  const auto use = json::parse(messages_writer(head, 7)->whole({called}, {}));
  CHECK(use["stop_reason"] == "tool_use");
  CHECK(use["content"][0] == json::parse(R"({"type":"tool_use","id":"abc","name":"f","input":{"a":1}})"));
  CHECK(json::parse(messages_writer(head, 7)->whole({piece("x", "length")}, {}))["stop_reason"] ==
        "max_tokens");
  CHECK(json::parse(messages_writer(head, 7)->whole({piece("x", "stop")}, {}))["stop_reason"] == "end_turn");
}

TEST_CASE("a streamed message opens and closes its blocks") {
  const auto writer = messages_writer(head, 7);
  std::string all = writer->begin();
  for (const auto& p : {thought("a"), thought("b"), piece("c"), call("1", "f", "{"), call("", "", "}"),
                        call("2", "g", ""), piece("", "tool_calls")})
    all += writer->piece(p);
  all += writer->end({7, 0, 6, 2});
  std::string order;
  std::string partial;
  for (const auto& e : events_of(all)) {
    const std::string type = e["type"];
    order += type == "content_block_start"
                 ? "<" + e["content_block"]["type"].get<std::string>().substr(0, 2) +
                       std::to_string(e["index"].get<int>())
             : type == "content_block_delta" ? "."
             : type == "content_block_stop"  ? ">"
                                             : "[" + type.substr(8) + "]";
    if (type == "content_block_delta" && e["delta"]["type"] == "input_json_delta")
      partial += e["delta"]["partial_json"].get<std::string>();
    if (type == "message_delta") {
      CHECK(e["delta"]["stop_reason"] == "tool_use");
      CHECK(e["usage"]["output_tokens"] == 6);
    }
  }
  CHECK(order == "[start]<th0..><te1.><to2..><to3>[delta][stop]");
  CHECK(partial == "{}");
  CHECK(events_of(writer->error_event({ec::unavailable, "gone"}))[0]["error"]["type"] == "overloaded_error");
}

TEST_CASE("errors are said in Anthropic's words") {
  const auto e =
      format_error({ec::invalid_argument, "max_tokens: is required"}, 0, {}, error_form::anthropic);
  CHECK(e.status == 400);
  CHECK(
      json::parse(e.body) ==
      json::parse(
          R"({"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: is required"}})"));
}

TEST_CASE("input of a response becomes the conversation that it is") {
  const auto r = response_of(R"("instructions":"be brief","max_output_tokens":5,"store":false,
    "input":[{"role":"user","content":"q"},{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"say","annotations":[]}]},
      {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":"7"},
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}])");
  REQUIRE(r.messages.size() == 5);
  CHECK(r.messages[0].role == "system");
  CHECK(r.messages[2].role == "assistant");
  CHECK(r.messages[2].content == "say");
  CHECK(r.messages[2].reasoning_content == "t");
  CHECK(r.messages[2].tool_calls.size() == 1);
  CHECK(r.messages[3].role == "tool");
  CHECK(r.messages[3].content == "7");
  CHECK(r.messages[4].content == "a\nb");
  CHECK(r.sampling.max_tokens == 5);
  const auto form = response_of(
      R"("input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"integer"}}},
         "tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}],
         "tool_choice":{"type":"function","name":"f"})");
  CHECK_FALSE(form.sampling.grammar.empty());
  CHECK(form.form_field == "text");
  CHECK(form.choice == tool_choice::required);
  CHECK(json::parse(form.echo)["tools"][0]["name"] == "f");
}

TEST_CASE("what a response cannot be is refused by name") {
  CHECK(response_complaint("") == "input: is required");
  CHECK(response_complaint(R"("input":[])").starts_with("input: "));
  CHECK(response_complaint(R"("input":"x","include":["message.output_text.logprobs"])")
            .starts_with("include: message.output_text.logprobs is not supported"));
  CHECK(response_complaint(R"("input":"x","include":["reasoning.encrypted_content"])").empty());
  CHECK(response_complaint(R"("input":[{"type":"item_reference","id":"x"}])") ==
        "input[0]: is not supported: type 'item_reference'");
  CHECK(response_complaint(R"("input":[{"role":"user","content":[{"type":"input_image"}]}])")
            .starts_with("input[0].content[0]: "));
  CHECK(response_complaint(R"("input":"x","store":true)").starts_with("store: is not supported"));
  CHECK(
      response_complaint(R"("input":"x","previous_response_id":"r")").starts_with("previous_response_id: "));
  CHECK(response_complaint(R"("input":"x","tools":[{"type":"web_search"}])").starts_with("tools[0]: "));
  CHECK(response_complaint(R"("input":"x","text":{"format":{"type":"xml"}})").starts_with("text: "));
  CHECK(response_complaint(
            R"("input":"x","text":{"format":{"type":"json_schema","schema":{"$dynamicRef":"#a"}}})")
            .starts_with("text: format: at #: '$dynamicRef'"));
}

TEST_CASE("a response has its items, and repeats what it was asked") {
  auto c = piece("Hello", "length");
  c.reasoning = "hm";
  c.calls.push_back({0, "abc", "f", "{}"});
  const auto body = json::parse(responses_writer(head, R"({"temperature":0.5})")->whole({c}, {9, 4, 5, 2}));
  CHECK(body["object"] == "response");
  CHECK(body["status"] == "incomplete");
  CHECK(body["incomplete_details"]["reason"] == "max_output_tokens");
  CHECK(body["store"] == false);
  CHECK(body["temperature"] == 0.5);
  REQUIRE(body["output"].size() == 3);
  CHECK(body["output"][0]["content"][0]["text"] == "hm");
  CHECK(body["output"][1]["content"][0]["text"] == "Hello");
  CHECK(body["output"][2]["call_id"] == "abc");
  CHECK(body["usage"] == json::parse(R"({"input_tokens":9,"input_tokens_details":{"cached_tokens":4},
    "output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":14})"));
}

TEST_CASE("a streamed response counts its events and says everything twice") {
  const auto writer = responses_writer(head, "{}");
  std::string all = writer->begin();
  for (const auto& p : {thought("t"), piece("a"), piece("b"), call("1", "f", "{"), call("", "", "}"),
                        piece("", "tool_calls")})
    all += writer->piece(p);
  all += writer->end({7, 0, 6, 1});
  const auto events = events_of(all);
  std::string types;
  for (std::size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i]["sequence_number"] == i);
    types += events[i]["type"].get<std::string>().substr(9) + "\n";
  }
  CHECK(
      types ==
      "created\nin_progress\noutput_item.added\nreasoning_text.delta\nreasoning_text.done\noutput_item.done\n"
      "output_item.added\ncontent_part.added\noutput_text.delta\noutput_text.delta\noutput_text.done\n"
      "content_part.done\noutput_item.done\noutput_item.added\nfunction_call_arguments.delta\n"
      "function_call_arguments.delta\nfunction_call_arguments.done\noutput_item.done\ncompleted\n");
  const auto& output = events.back()["response"]["output"];
  REQUIRE(output.size() == 3);
  CHECK(output[1]["content"][0]["text"] == "ab");
  CHECK(output[2]["arguments"] == "{}");
}
