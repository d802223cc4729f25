// Answers in the shapes that OpenAI's clients read.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "runtime/api/openai.hpp"
#include "tests/runtime/api/piece.hpp"

using namespace mooncaf;
using mooncaf::test::piece;
using json = nlohmann::json;

namespace {

const answer_head completion_head{api_kind::completion, "cmpl-1", 1700000000, "m"};
const answer_head chat_head{api_kind::chat, "chatcmpl-1", 1700000000, "m"};

/// The JSON of one server-sent event, which must be one whole event.
json event_json(const std::string& event) {
  REQUIRE(event.starts_with("data: "));
  REQUIRE(event.ends_with("\n\n"));
  const auto text = event.substr(6, event.size() - 8);
  REQUIRE_MESSAGE(text.find('\n') == std::string::npos, "a line end inside would end the event");
  return json::parse(text);
}

}  // namespace

TEST_CASE("a completion is a text_completion with choices and usage") {
  auto second = piece("b", "length");
  second.index = 1;
  const auto body = json::parse(format_answer(completion_head, {piece("a", "stop"), second}, {100, 64, 7}));
  CHECK(body["id"] == "cmpl-1");
  CHECK(body["object"] == "text_completion");
  CHECK(body["created"] == 1700000000);
  CHECK(body["model"] == "m");
  REQUIRE(body["choices"].size() == 2);
  CHECK(body["choices"][0] ==
        json::parse(R"({"index":0,"text":"a","logprobs":null,"finish_reason":"stop"})"));
  CHECK(body["choices"][1]["index"] == 1);
  CHECK(body["choices"][1]["finish_reason"] == "length");
  CHECK(body["usage"] == json::parse(R"({"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,
                                         "prompt_tokens_details":{"cached_tokens":64}})"));
}

TEST_CASE("a chat answer is a message of the assistant") {
  const auto body = json::parse(format_answer(chat_head, {piece("hi", "stop")}, {}));
  CHECK(body["object"] == "chat.completion");
  CHECK(body["choices"][0]["message"] == json::parse(R"({"role":"assistant","content":"hi"})"));
  CHECK_FALSE(body["choices"][0].contains("text"));
}

TEST_CASE("token ids stand where they were asked for, the prompt's where vLLM has them") {
  auto c = piece("a", "stop");
  CHECK_FALSE(json::parse(format_answer(completion_head, {c}, {}))["choices"][0].contains("token_ids"));
  c.token_ids = {{7, 8}};
  c.prompt_token_ids = {1, 2, 3};
  const json made{7, 8}, prompt{1, 2, 3};
  for (const auto& body : {json::parse(format_answer(completion_head, {c}, {})),
                           event_json(format_chunk(completion_head, c, false))}) {
    CHECK(body["choices"][0]["token_ids"] == made);
    CHECK(body["choices"][0]["prompt_token_ids"] == prompt);
  }
  for (const auto& body :
       {json::parse(format_answer(chat_head, {c}, {})), event_json(format_chunk(chat_head, c, false))}) {
    CHECK(body["choices"][0]["token_ids"] == made);
    CHECK(body["prompt_token_ids"] == prompt);
  }
  c.prompt_token_ids.clear();  // a later piece
  CHECK_FALSE(event_json(format_chunk(chat_head, c, false)).contains("prompt_token_ids"));
}

TEST_CASE("a streamed chat names the role once, then sends pieces, then the reason") {
  auto first = piece("");
  first.role = true;
  const auto opening = event_json(format_chunk(chat_head, first, false));
  CHECK(opening["object"] == "chat.completion.chunk");
  CHECK(opening["choices"][0]["delta"] == json::parse(R"({"role":"assistant","content":""})"));
  CHECK(opening["choices"][0]["finish_reason"].is_null());
  CHECK_FALSE(opening.contains("usage"));
  const auto middle = event_json(format_chunk(chat_head, piece("line\n\nend"), false));
  CHECK(middle["choices"][0]["delta"] == json::parse(R"({"content":"line\n\nend"})"));
  const auto last = event_json(format_chunk(chat_head, piece("", "stop"), false));
  CHECK(last["choices"][0]["delta"] == json::object());
  CHECK(last["choices"][0]["finish_reason"] == "stop");
}

TEST_CASE("reasoning stands beside the content, streamed and not, and its tokens are counted") {
  auto c = piece("yes", "stop");
  c.reasoning = "hm";
  const auto body = json::parse(format_answer(chat_head, {c}, {9, 0, 5, 3}));
  CHECK(body["choices"][0]["message"] ==
        json::parse(R"({"role":"assistant","content":"yes","reasoning_content":"hm"})"));
  CHECK(body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3);
  c = piece("");
  c.reasoning = "hm";
  CHECK(event_json(format_chunk(chat_head, c, false))["choices"][0]["delta"] ==
        json::parse(R"({"reasoning_content":"hm"})"));
  c.finish_reason = "length";
  CHECK(json::parse(format_answer(chat_head, {c}, {}))["choices"][0]["message"]["content"].is_null());
}

TEST_CASE("log-probabilities of a prompt are vLLM's: by id, with the rank where it is known") {
  auto c = piece("a", "stop");
  c.prompt_logprobs = {{"x", std::nullopt, {}, 0, 7, {}},
                       {"y", -2.0f, {{"z", -1.0f}, {"y", -2.0f}}, 0, 8, {9, 8}},
                       {"w", -5.0f, {{"z", -1.0f}}, 0, 3, {9}}};
  const auto body = json::parse(format_answer(completion_head, {c}, {}));
  CHECK(body["choices"][0]["prompt_logprobs"] == json::parse(R"([null,
    {"8":{"logprob":-2.0,"rank":2,"decoded_token":"y"},"9":{"logprob":-1.0,"rank":1,"decoded_token":"z"}},
    {"3":{"logprob":-5.0,"rank":null,"decoded_token":"w"},"9":{"logprob":-1.0,"rank":1,"decoded_token":"z"}}])"));
  CHECK(json::parse(format_answer(chat_head, {c}, {}))["prompt_logprobs"].size() == 3);
}

TEST_CASE("a streamed completion sends pieces of text") {
  const auto chunk = event_json(format_chunk(completion_head, piece("abc"), false));
  CHECK(chunk["object"] == "text_completion");
  CHECK(chunk["choices"][0]["text"] == "abc");
  CHECK(chunk["choices"][0]["finish_reason"].is_null());
}

TEST_CASE("with include_usage every chunk has the field, and the last has no choices") {
  CHECK(event_json(format_chunk(completion_head, piece("a"), true)).at("usage").is_null());
  for (const auto& head : {completion_head, chat_head}) {
    const auto last = event_json(format_usage_chunk(head, {10, 4, 3}));
    CHECK(last["choices"] == json::array());
    CHECK(last["usage"]["total_tokens"] == 13);
    CHECK(last["usage"]["prompt_tokens_details"]["cached_tokens"] == 4);
    CHECK(last["id"] == head.id);
  }
  CHECK(event_json(format_usage_chunk(chat_head, {}))["object"] == "chat.completion.chunk");
}

TEST_CASE("logprobs of a completion are parallel lists, with offsets in characters") {
  auto c = piece("né😀", "stop");
  c.logprobs = {
      {"n", -0.5f, {{"n", -0.5f}, {"m", -1.5f}}, 10}, {"é", -1.0f, {}, 11}, {"😀", std::nullopt, {}, 12}};
  const auto body = json::parse(format_answer(completion_head, {c}, {}));
  const auto& l = body["choices"][0]["logprobs"];
  CHECK(l["tokens"] == json::parse(R"(["n","é","😀"])"));
  CHECK(l["token_logprobs"] == json::parse("[-0.5,-1.0,null]"));
  CHECK(l["top_logprobs"][2].is_null());
  CHECK(l["top_logprobs"][0] == json::parse(R"({"n":-0.5,"m":-1.5})"));
  CHECK(l["text_offset"] == json::parse("[10,11,12]"));
}

TEST_CASE("the token that was taken is among the top of a completion, however unlikely") {
  auto c = piece("z", "stop");
  c.logprobs = {{"z", -9.0f, {{"n", -0.5f}, {"m", -1.5f}}, 0}, {"y", -3.0f, {}, 1}};
  const auto top =
      json::parse(format_answer(completion_head, {c}, {}))["choices"][0]["logprobs"]["top_logprobs"];
  CHECK(top[0] == json::parse(R"({"n":-0.5,"m":-1.5,"z":-9.0})"));
  CHECK(top[1] == json::parse(R"({"y":-3.0})"));
}

TEST_CASE("parts of characters are told apart in a completion's logprobs") {
  auto c = piece("😀", "stop");
  c.logprobs = {{"\xf0\x9f", -0.5f, {{"\xf0\x9f", -0.5f}, {"\xe2\x82", -1.5f}}, 0}};
  const auto l = json::parse(format_answer(completion_head, {c}, {}))["choices"][0]["logprobs"];
  CHECK(l["tokens"][0] == R"(bytes:\xf0\x9f)");
  CHECK(l["top_logprobs"][0].size() == 2);
  CHECK(l["top_logprobs"][0][R"(bytes:\xe2\x82)"] == -1.5);
}

TEST_CASE("logprobs of a chat are one list, with the bytes of each token") {
  auto c = piece("é", "stop");
  c.logprobs = {{"é", -0.5f, {{"é", -0.5f}, {"e", -1.0f}}, 0}};
  for (const auto& body :
       {json::parse(format_answer(chat_head, {c}, {})), event_json(format_chunk(chat_head, c, false))}) {
    const auto& t = body["choices"][0]["logprobs"]["content"][0];
    CHECK(t["token"] == "é");
    CHECK(t["logprob"] == -0.5);
    CHECK(t["bytes"] == json::parse("[195,169]"));
    REQUIRE(t["top_logprobs"].size() == 2);
    CHECK(t["top_logprobs"][1]["token"] == "e");
    CHECK(t["top_logprobs"][1]["bytes"] == json::parse("[101]"));
  }
}

TEST_CASE("a token that is half a character does not break the JSON, and its bytes tell what it is") {
  auto c = piece("", "length");
  c.logprobs = {{"\xf0\x9f", -0.5f, {}, 0}};
  const auto body = json::parse(format_answer(chat_head, {c}, {}));
  CHECK(body["choices"][0]["logprobs"]["content"][0]["bytes"] == json::parse("[240,159]"));
}

TEST_CASE("errors have OpenAI's shape, with the field and a status that fits") {
  struct row {
    ec code;
    unsigned status;
    const char* type;
  };
  for (const auto& [code, status, type] :
       std::initializer_list<row>{{ec::invalid_argument, 400, "invalid_request_error"},
                                  {ec::unsupported, 400, "invalid_request_error"},
                                  {ec::unauthenticated, 401, "authentication_error"},
                                  {ec::not_found, 404, "not_found_error"},
                                  {ec::overloaded, 429, "rate_limit_error"},
                                  {ec::slo_unreachable, 429, "rate_limit_error"},
                                  {ec::unavailable, 503, "service_unavailable_error"},
                                  {ec::peer_lost, 503, "service_unavailable_error"},
                                  {ec::out_of_space, 429, "rate_limit_error"},
                                  {ec::timed_out, 504, "timeout_error"},
                                  {ec::internal, 500, "internal_error"}}) {
    const auto e = format_error({code, "why"}, 3);
    CHECK(e.status == status);
    CHECK(e.retry_after_s == 3);
    const auto body = json::parse(e.body)["error"];
    CHECK(body["type"] == type);
    CHECK(body["message"] == "why");
    CHECK(body["param"].is_null());
    CHECK(body["code"] == std::string{to_string(code)});
  }
  CHECK(json::parse(
            format_error({ec::invalid_argument, "max_tokens: must be an integer"}).body)["error"]["param"] ==
        "max_tokens");
  CHECK(json::parse(format_error({ec::internal, ""}).body)["error"]["message"] == "internal error");
  CHECK(event_json(format_error_event({ec::peer_lost, "gone"}))["error"]["message"] == "gone");
}

TEST_CASE("an error may carry the code that OpenAI's clients look for") {
  const auto e = format_error({ec::not_found, "model: `x` does not exist here"}, 0, "model_not_found");
  CHECK(e.status == 404);
  CHECK(json::parse(e.body)["error"] == json::parse(R"({"message":"model: `x` does not exist here",
      "type":"invalid_request_error","param":"model","code":"model_not_found"})"));
}

TEST_CASE("foreign text in an error cannot break out of it") {
  const auto e = format_error({ec::not_found, "no such path: /\"}\n\x01\xff"});
  CHECK(json::parse(e.body)["error"]["message"].get<std::string>().starts_with("no such path: /\"}\n\x01"));
}

TEST_CASE("models, tokens and text have vLLM's fields") {
  const auto models = json::parse(format_models({{"m", ""}, {"tuned", "m"}}, 5, 8192));
  CHECK(models["object"] == "list");
  CHECK(models["data"][0]["id"] == "m");
  CHECK(models["data"][0]["object"] == "model");
  CHECK(models["data"][0]["max_model_len"] == 8192);
  CHECK(json::parse(format_model({"m", ""}, 5, 8192)) == models["data"][0]);
  CHECK(json::parse(format_tokens({1, 2}, 8192)) ==
        json::parse(R"({"count":2,"max_model_len":8192,"tokens":[1,2]})"));
  CHECK(json::parse(format_text("hi")) == json::parse(R"({"prompt":"hi"})"));
}
