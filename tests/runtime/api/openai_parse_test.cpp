// What clients send becomes what was meant, or an error that begins with the name of the field.

#include <doctest/doctest.h>

#include "runtime/api/openai.hpp"

using namespace mooncaf;

namespace {

completion_request completion(const std::string& fields) {
  const auto parsed = parse_completion(R"({"prompt":"p")" + (fields.empty() ? "" : "," + fields) + "}");
  REQUIRE_MESSAGE(parsed.has_value(), fields, ": ", parsed ? "" : parsed.error().detail);
  return *parsed;
}

chat_request chat(const std::string& fields) {
  const auto parsed = parse_chat(R"({"messages":[{"role":"user","content":"hi"}])" +
                                 (fields.empty() ? "" : "," + fields) + "}");
  REQUIRE_MESSAGE(parsed.has_value(), fields, ": ", parsed ? "" : parsed.error().detail);
  return *parsed;
}

template <class Parsed>
std::string complaint(const Parsed& parsed) {
  if (parsed) return "accepted";
  CHECK(parsed.error().code == ec::invalid_argument);
  return parsed.error().detail;
}

std::string completion_complaint(const std::string& fields) {
  return complaint(parse_completion(R"({"prompt":"p",)" + fields + "}"));
}

std::string prompt_complaint(const std::string& prompt) {
  return complaint(parse_completion(R"({"prompt":)" + prompt + "}"));
}

std::string messages_complaint(const std::string& messages) {
  return complaint(parse_chat(R"({"messages":)" + messages + "}"));
}

}  // namespace

TEST_CASE("a bare completion has OpenAI's defaults") {
  const auto r = completion("");
  CHECK(r.sampling.temperature == 1.0f);
  CHECK(r.sampling.top_p == 1.0f);
  CHECK(r.sampling.max_tokens == 16);
  CHECK(r.sampling.logprobs == -1);
  CHECK(r.n == 1);
  CHECK_FALSE(r.stream);
  CHECK_FALSE(r.include_usage);
  CHECK_FALSE(r.echo);
  CHECK_FALSE(r.seed_given);
  CHECK_FALSE(r.priority.has_value());
  CHECK(chat("").sampling.max_tokens == 0);  // as much as there is room
}

TEST_CASE("every field of a completion arrives") {
  const auto r = completion(R"("model":"m","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
      "repetition_penalty":1.1,"presence_penalty":-0.5,"frequency_penalty":0.25,"seed":-7,"max_tokens":9,
      "min_tokens":3,"ignore_eos":true,"stop":["a","b"],"stop_token_ids":[5,6],"logit_bias":{"12":-100,"13":2.5},
      "n":4,"stream":true,"stream_options":{"include_usage":true},"priority":2,"cache_salt":"s","user":"u","ttft_slo_ms":100,
      "tbt_slo_ms":20,"echo":true,"include_stop_str_in_output":true,"return_token_ids":true)");
  CHECK(r.model == "m");
  const auto& s = r.sampling;
  CHECK(s.temperature == 0.5f);
  CHECK(s.top_p == 0.9f);
  CHECK(s.top_k == 40);
  CHECK(s.min_p == 0.1f);
  CHECK(s.repetition_penalty == 1.1f);
  CHECK(s.presence_penalty == -0.5f);
  CHECK(s.frequency_penalty == 0.25f);
  CHECK(r.seed_given);
  CHECK(s.seed == static_cast<std::uint64_t>(-7));
  CHECK(s.max_tokens == 9);
  CHECK(s.min_tokens == 3);
  CHECK(s.ignore_eos);
  CHECK(s.stop == std::vector<std::string>{"a", "b"});
  CHECK(s.stop_token_ids == std::vector<std::int32_t>{5, 6});
  CHECK(s.logit_bias == std::vector<std::pair<std::int32_t, float>>{{12, -100.0f}, {13, 2.5f}});
  CHECK(r.n == 4);
  CHECK(r.stream);
  CHECK(r.include_usage);
  CHECK(r.priority == 2);
  CHECK(r.cache_salt == "s");
  CHECK(r.user == "u");
  CHECK(r.ttft_slo_ms == 100);
  CHECK(r.tbt_slo_ms == 20);
  CHECK(r.echo);
  CHECK(r.include_stop);
  CHECK(r.return_token_ids);
}

TEST_CASE("whole numbers may be written with a point, and null means not given") {
  CHECK(completion(R"("max_tokens":8.0,"n":2.0)").sampling.max_tokens == 8);
  const auto r =
      completion(R"("max_tokens":null,"stop":null,"n":null,"stream":null,"logprobs":null,"seed":null,
      "stream_options":null,"logit_bias":null,"temperature":null,"cache_salt":null,"stop_token_ids":null)");
  CHECK(r.sampling.max_tokens == 16);
  CHECK(r.n == 1);
}

TEST_CASE("max_completion_tokens is the newer name of max_tokens") {
  CHECK(chat(R"("max_completion_tokens":5)").sampling.max_tokens == 5);
  CHECK(chat(R"("max_completion_tokens":5,"max_tokens":7)").sampling.max_tokens == 5);
}

TEST_CASE("unknown fields are accepted") {
  completion(R"("suffix":null,"user":"u","best_of":1,"some_future_field":{"deep":[1,2,{"x":null}]})");
  chat(R"("tools":[],"response_format":{"type":"text"},"parallel_tool_calls":true,"metadata":{"a":"b"})");
}

TEST_CASE("a wrong type or range is refused by the name of the field") {
  struct row {
    const char* field;
    const char* json;
  };
  for (const auto& [field, json] : std::initializer_list<row>{{"temperature", R"("hot")"},
                                                              {"temperature", "-0.1"},
                                                              {"temperature", "2.1"},
                                                              {"temperature", "[]"},
                                                              {"top_p", "0"},
                                                              {"top_p", "1.5"},
                                                              {"top_p", R"("1")"},
                                                              {"top_k", "1.5"},
                                                              {"top_k", "-2"},
                                                              {"min_p", "2"},
                                                              {"repetition_penalty", "0"},
                                                              {"presence_penalty", "3"},
                                                              {"frequency_penalty", "-3"},
                                                              {"seed", "1.5"},
                                                              {"seed", R"("1")"},
                                                              {"max_tokens", "-1"},
                                                              {"max_tokens", "1.5"},
                                                              {"max_tokens", R"("9")"},
                                                              {"max_tokens", "99999999999999999999"},
                                                              {"max_completion_tokens", "true"},
                                                              {"min_tokens", "-1"},
                                                              {"ignore_eos", "1"},
                                                              {"stop", "1"},
                                                              {"stop", R"(["a",1])"},
                                                              {"stop", "{}"},
                                                              {"stop_token_ids", "5"},
                                                              {"stop_token_ids", "[-1]"},
                                                              {"stop_token_ids", R"(["5"])"},
                                                              {"logit_bias", "[]"},
                                                              {"logit_bias", R"({"x":1})"},
                                                              {"logit_bias", R"({"-1":1})"},
                                                              {"logit_bias", R"({"1":101})"},
                                                              {"logit_bias", R"({"1":"1"})"},
                                                              {"logit_bias", R"({"":1})"},
                                                              {"logit_bias", R"({"99999999999":1})"},
                                                              {"n", "0"},
                                                              {"n", "129"},
                                                              {"n", R"("2")"},
                                                              {"stream", R"("true")"},
                                                              {"stream", "1"},
                                                              {"stream_options", "true"},
                                                              {"stream_options", R"({"include_usage":1})"},
                                                              {"priority", "3"},
                                                              {"priority", "-1"},
                                                              {"cache_salt", "7"},
                                                              {"ttft_slo_ms", "0"},
                                                              {"ttft_slo_ms", R"("9")"},
                                                              {"tbt_slo_ms", "0"},
                                                              {"model", "1"},
                                                              {"echo", R"("yes")"},
                                                              {"logprobs", "true"},
                                                              {"logprobs", "21"},
                                                              {"logprobs", "-1"}}) {
    const auto said = completion_complaint("\"" + std::string{field} + "\":" + json);
    CHECK_MESSAGE(said.starts_with(std::string{field} + ": "), field, " = ", json, " said: ", said);
  }
}

TEST_CASE("a range error says the range and the value") {
  CHECK(completion_complaint(R"("temperature":3.5)") == "temperature: must lie in [0, 2], got 3.5");
  CHECK(completion_complaint(R"("n":500)") == "n: must lie in [1, 128], got 500");
}

TEST_CASE("what every token or answer would pay for is bounded") {
  const std::string many_stops = [] {
    std::string s = "[";
    for (int i = 0; i < 17; ++i) s += (i ? ",\"x\"" : "\"x\"");
    return s + "]";
  }();
  CHECK(completion_complaint("\"stop\":" + many_stops).starts_with("stop: takes at most 16"));
  CHECK(completion_complaint("\"stop\":\"" + std::string(4097, 'x') + "\"")
            .starts_with("stop: takes strings of at most"));
  CHECK(completion_complaint("\"cache_salt\":\"" + std::string(1025, 'x') + "\"")
            .starts_with("cache_salt: takes at most"));
  std::string biases = "{";
  for (int i = 0; i < 4097; ++i) biases += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
  CHECK(completion_complaint("\"logit_bias\":" + biases + "}").starts_with("logit_bias: takes at most"));
  std::string ids = "[0";
  for (int i = 0; i < 1024; ++i) ids += ",1";
  CHECK(completion_complaint("\"stop_token_ids\":" + ids + "]").starts_with("stop_token_ids: takes at most"));
  std::string prompts = "[\"\"";
  for (int i = 0; i < 1024; ++i) prompts += ",\"\"";
  CHECK(prompt_complaint(prompts + "]").starts_with("prompt: takes at most"));
}

TEST_CASE("an error does not repeat a long body") {
  const std::string longest(1u << 20, 'x');
  CHECK(complaint(parse_completion("{\"" + longest)).size() < 400);
  CHECK(completion_complaint("\"logit_bias\":{\"" + longest + "\":1}").size() < 400);
}

TEST_CASE("a prompt is a string, strings, token ids, or lists of token ids") {
  const auto prompts = [](const std::string& json) {
    const auto parsed = parse_completion(R"({"prompt":)" + json + "}");
    REQUIRE_MESSAGE(parsed.has_value(), json);
    return parsed->prompts;
  };
  using ids = std::vector<std::int32_t>;
  CHECK(prompts(R"("one")") == std::vector<prompt_input>{std::string{"one"}});
  CHECK(prompts(R"(["one","two"])") == std::vector<prompt_input>{std::string{"one"}, std::string{"two"}});
  CHECK(prompts("[1,2,3]") == std::vector<prompt_input>{ids{1, 2, 3}});
  CHECK(prompts("[[1,2],[3]]") == std::vector<prompt_input>{ids{1, 2}, ids{3}});
  CHECK(prompts(R"(["one",[2,3]])") == std::vector<prompt_input>{std::string{"one"}, ids{2, 3}});
  CHECK(prompts(R"("nul \u0000 and \ud83d\ude00")") ==
        std::vector<prompt_input>{std::string{"nul \0 and 😀", 14}});
}

TEST_CASE("a prompt of another shape is refused") {
  for (const auto* json : {"1", "true", "{}", "[]", "[[]]", "[1,\"a\"]", "[1,-1]", "[1,2.5]", "[4294967296]",
                           "[[1],[\"a\"]]", "[null]", "[[[1]]]", "[18446744073709551615]"}) {
    CHECK_MESSAGE(prompt_complaint(json).starts_with("prompt: "), json);
  }
  CHECK(complaint(parse_completion("{}")) == "prompt: is required");
  CHECK(complaint(parse_completion(R"({"prompt":null})")) == "prompt: is required");
}

TEST_CASE("a body that is no JSON object is refused, with the place") {
  for (const auto* body :
       {"", " ", "{", "[]", "1", "null", "\"x\"", "{\"prompt\":}", "{\"prompt\":\"a\"}x", "{'prompt':'a'}",
        "{\"prompt\":\"\xff\"}", "{\"a\":1e999}", "\xef\xbb", "{\"prompt\":\"\\ud800\"}"}) {
    CHECK_MESSAGE(complaint(parse_completion(body)).starts_with("body: "), body);
  }
  CHECK(complaint(parse_completion("{\"prompt\":\n  oops}")).find("line 2, column 3") != std::string::npos);
  CHECK(complaint(parse_completion("[]")) == "body: must be a JSON object");
}

TEST_CASE("deep nesting is refused without recursion") {
  const std::string deep(200000, '[');
  CHECK(complaint(parse_completion("{\"prompt\":" + deep)).starts_with("body: "));
  const std::string objects = [] {
    std::string s = "{\"x\":";
    for (int i = 0; i < 100; ++i) s += "{\"x\":";
    return s + "1" + std::string(101, '}');
  }();
  CHECK(complaint(parse_completion(objects)) == "body: nested too deeply");
}

TEST_CASE("stop may be one string, and an empty one stops nothing") {
  CHECK(completion(R"("stop":"END")").sampling.stop == std::vector<std::string>{"END"});
  CHECK(completion(R"("stop":"")").sampling.stop.empty());
  CHECK(completion(R"("stop":[])").sampling.stop.empty());
}

TEST_CASE("echo with logprobs asks for those of the prompt, too") {
  CHECK(completion(R"("echo":true,"logprobs":1)").sampling.prompt_logprobs == 1);
  CHECK(completion(R"("echo":true)").sampling.prompt_logprobs == -1);
  CHECK(completion(R"("logprobs":1)").sampling.prompt_logprobs == -1);
  CHECK(completion(R"("echo":true)").echo);
  CHECK(completion(R"("logprobs":0)").sampling.logprobs == 0);
}

TEST_CASE("no tokens at all may be asked for where a prompt is scored, and not in a chat") {
  const auto r = completion(R"("max_tokens":0,"echo":true,"logprobs":1)");
  CHECK(r.max_tokens_given);
  CHECK(r.sampling.max_tokens == 0);
  CHECK_FALSE(completion("").max_tokens_given);
  CHECK(complaint(parse_chat(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":0})"))
            .starts_with("max_tokens: "));
}

TEST_CASE("a completion says how special tokens in its text are read") {
  CHECK_FALSE(completion("").parse_special.has_value());
  CHECK(completion("").add_special_tokens);
  CHECK(completion(R"("parse_special":false)").parse_special == false);
  CHECK(completion(R"("parse_special":true,"add_special_tokens":false)").parse_special == true);
  CHECK_FALSE(completion(R"("add_special_tokens":false)").add_special_tokens);
}

TEST_CASE("a chat asks for logprobs in its own way") {
  CHECK(chat(R"("logprobs":true)").sampling.logprobs == 0);
  CHECK(chat(R"("logprobs":true,"top_logprobs":5)").sampling.logprobs == 5);
  CHECK(chat(R"("logprobs":false)").sampling.logprobs == -1);
  const std::string opening = R"({"messages":[{"role":"user","content":"x"}],)";
  CHECK(complaint(parse_chat(opening + R"("top_logprobs":5})")).starts_with("top_logprobs: "));
  CHECK(complaint(parse_chat(opening + R"("logprobs":3})")).starts_with("logprobs: "));
  CHECK(
      complaint(parse_chat(opening + R"("logprobs":true,"top_logprobs":21})")).starts_with("top_logprobs: "));
}

TEST_CASE("messages have a role, and text or parts of text") {
  const auto parsed = parse_chat(R"({"messages":[{"role":"system","content":"be brief"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null},{"role":"user","name":"n","content":""}]})");
  REQUIRE(parsed.has_value());
  const auto& m = parsed->messages;
  REQUIRE(m.size() == 4);
  CHECK(m[0].role == "system");
  CHECK(m[0].content == "be brief");
  CHECK(m[1].content == "a\nb");
  CHECK(m[2].content.empty());
}

TEST_CASE("calls of tools and their results are part of a conversation") {
  const auto r = parse_chat(R"({"messages":[{"role":"user","content":"x"},
      {"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},
        {"id":"c2","type":"function","function":{"name":"g","arguments":{"b":[2]}}},{"function":{"name":"h"}}]},
      {"role":"tool","tool_call_id":"c1","name":"f","content":[{"type":"text","text":"done"}]}]})");
  REQUIRE_MESSAGE(r.has_value(), (r ? "" : r.error().detail));
  const auto& calls = r->messages[1].tool_calls;
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].id == "c1");
  CHECK(calls[0].name == "f");
  CHECK(calls[0].arguments == R"({"a": 1})");
  CHECK(calls[1].arguments == R"({"b":[2]})");
  CHECK(calls[2].arguments == "{}");
  CHECK(r->messages[1].reasoning_content == "hm");
  CHECK(r->messages[2].tool_call_id == "c1");
  CHECK(r->messages[2].content == "done");
  for (const std::string bad : {R"("no list")", R"([7])", R"([{}])", R"([{"function":{"name":""}}])",
                                R"([{"function":{"name":5}}])"}) {
    CHECK(messages_complaint(R"([{"role":"assistant","tool_calls":)" + bad + "}]")
              .starts_with("messages[0].tool_calls: "));
  }
  CHECK(messages_complaint(R"([{"role":"user","tool_calls":[{"function":{"name":"f"}}]}])")
            .starts_with("messages[0].tool_calls: "));
  CHECK(messages_complaint(R"([{"role":"assistant","content":"x","function_call":{"name":"f"}}])")
            .starts_with("messages[0].function_call: is not supported"));
  CHECK(messages_complaint(R"([{"role":"user","content":"x","name":5}])").starts_with("messages[0].name: "));
  CHECK(parse_chat(
      R"({"messages":[{"role":"assistant","content":"x","tool_calls":[],"function_call":null}]})"));
}

TEST_CASE("what a chat template is told comes from the request") {
  CHECK(chat("").add_generation_prompt);
  CHECK(chat("").variables.empty());
  CHECK(chat(R"("chat_template_kwargs":{"enable_thinking":false,"a":[1]})").variables ==
        R"({"enable_thinking":false,"a":[1]})");
  CHECK_FALSE(chat(R"("add_generation_prompt":false)").add_generation_prompt);
  const auto goes_on = chat(R"("continue_final_message":true)");
  CHECK(goes_on.continue_final_message);
  CHECK_FALSE(goes_on.add_generation_prompt);
  const auto refused = [](const std::string& fields) {
    return complaint(parse_chat(R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}"));
  };
  CHECK(refused(R"("continue_final_message":true,"add_generation_prompt":true)")
            .starts_with("continue_final_message: "));
  CHECK(refused(R"("chat_template_kwargs":[1])").starts_with("chat_template_kwargs: "));
  CHECK(refused(R"("add_generation_prompt":"no")").starts_with("add_generation_prompt: "));
}

TEST_CASE("a message of another shape is refused by its index") {
  CHECK(messages_complaint("[]").starts_with("messages: "));
  CHECK(messages_complaint("{}").starts_with("messages: "));
  CHECK(messages_complaint("\"hi\"").starts_with("messages: "));
  CHECK(complaint(parse_chat("{}")) == "messages: is required");
  CHECK(messages_complaint(R"([{"role":"user","content":"x"},7])").starts_with("messages[1]"));
  CHECK(messages_complaint(R"([{"content":"x"}])").starts_with("messages[0]"));
  CHECK(messages_complaint(R"([{"role":1,"content":"x"}])").starts_with("messages[0]"));
  CHECK(messages_complaint(R"([{"role":"user","content":5}])").starts_with("messages[0].content: "));
  CHECK(messages_complaint(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])")
            .starts_with("messages[0].content: "));
  CHECK(messages_complaint(R"([{"role":"user","content":[{"type":"text"}]}])")
            .starts_with("messages[0].content: "));
  CHECK(messages_complaint(R"([{"role":"user","content":["x"]}])").starts_with("messages[0].content: "));
}

TEST_CASE("tokenize takes text or messages") {
  const auto text = parse_tokenize(R"({"prompt":"abc","add_special_tokens":false})");
  REQUIRE(text.has_value());
  CHECK(std::get<std::string>(text->input) == "abc");
  CHECK_FALSE(text->add_special_tokens);
  const auto messages = parse_tokenize(R"({"messages":[{"role":"user","content":"x"}]})");
  REQUIRE(messages.has_value());
  CHECK(std::get<chat_prompt>(messages->input).messages.size() == 1);
  CHECK(complaint(parse_tokenize("{}")) == "prompt: is required");
  CHECK(complaint(parse_tokenize(R"({"prompt":["a"]})")).starts_with("prompt: "));
  CHECK(complaint(parse_tokenize(R"({"prompt":"a","add_special_tokens":1})"))
            .starts_with("add_special_tokens: "));
}

TEST_CASE("detokenize takes token ids") {
  CHECK(parse_detokenize(R"({"tokens":[1,2]})").value().tokens == std::vector<std::int32_t>{1, 2});
  CHECK(parse_detokenize(R"({"tokens":[]})").value().tokens.empty());
  for (const auto* body :
       {"{}", R"({"tokens":"1"})", R"({"tokens":[-1]})", R"({"tokens":[1.5]})", R"({"tokens":null})"}) {
    CHECK_MESSAGE(complaint(parse_detokenize(body)).starts_with("tokens: "), body);
  }
}

TEST_CASE("a form that is asked of the answer becomes a grammar, whatever field it comes in") {
  const std::pair<std::string, std::string> forms[] = {
      {"response_format", R"({"type":"json_object"})"},
      {"response_format",
       R"({"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"null"}}})"},
      {"guided_json", R"({"type":"null"})"},
      {"guided_json", R"("{\"type\":\"null\"}")"},
      {"json_schema", R"({"type":"null"})"},
      {"guided_regex", R"("a+")"},
      {"guided_choice", R"(["a","b"])"},
      {"guided_grammar", R"("root ::= \"a\"")"},
      {"grammar", R"("root ::= \"a\"")"},
      {"structured_outputs", R"({"json":{"type":"null"}})"},
      {"structured_outputs", R"({"choice":["a"],"regex":null})"},
  };
  for (const auto& [field, value] : forms) {
    const auto made = parse_completion(R"({"prompt":"p",")" + field + "\":" + value + "}");
    REQUIRE_MESSAGE(made.has_value(), value);
    CHECK(made->form_field == field);
    CHECK(made->sampling.grammar.starts_with("root ::= "));
  }
  for (const auto* none :
       {R"("response_format":{"type":"text"})", R"("structured_outputs":{})", R"("grammar":"")"}) {
    const auto made = parse_completion(R"({"prompt":"p",)" + std::string{none} + "}");
    REQUIRE(made.has_value());
    CHECK(made->sampling.grammar.empty());
  }
}

TEST_CASE("the members of an answer come in the order that the client wrote them in") {
  const auto made = parse_completion(
      R"({"prompt":"p","guided_json":{"properties":{"z":{"type":"null"},"a":{"type":"null"}},"required":["z","a"]}})");
  REQUIRE(made.has_value());
  const auto& text = made->sampling.grammar;
  CHECK(text.find("\\\"z\\\"") < text.find("\\\"a\\\""));
}

TEST_CASE("a form that is wrong, or the second of two, is refused by its field") {
  const std::pair<std::string, std::string> bad[] = {
      {R"("response_format":{"type":"xml"})", "response_format: type must be"},
      {R"("response_format":{"type":"json_schema"})", "response_format: json_schema.schema is required"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"$dynamicRef":"#a"}}})",
       "response_format: at #: '$dynamicRef' is not supported"},
      {R"("guided_json":7)", "guided_json: must be a JSON schema"},
      {R"("guided_json":"{")", "guided_json: is not JSON"},
      {R"x("guided_regex":"(?=a)")x", "guided_regex: at byte 2: lookaround"},
      {R"("guided_choice":[1])", "guided_choice: must be a list of strings"},
      {R"("structured_outputs":{"structural_tag":{}})",
       "structured_outputs: structural_tag is not supported"},
      {R"("guided_regex":"a","guided_choice":["b"])",
       "guided_choice: asks for a form of the answer, as guided_regex does"},
      {R"("allowed_token_ids":["a"])", "allowed_token_ids: must be"},
      {R"("bad_words":[""])", "bad_words: must be strings"},
  };
  for (const auto& [fields, words] : bad) {
    const auto made = parse_completion(R"({"prompt":"p",)" + fields + "}");
    REQUIRE_MESSAGE(!made.has_value(), fields);
    CHECK_MESSAGE(made.error().detail.starts_with(words), made.error().detail);
  }
}
