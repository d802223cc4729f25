// Any bytes are a request body to somebody: parsing ends in an error that names a field, or in values within
// their stated ranges; and whatever text comes in, what goes out is JSON, one event at a time. The first byte
// picks the parser.

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/api/messages_api.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/api/responses_api.hpp"

using namespace mooncaf;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_error(const error& e) {
  require(e.code == ec::invalid_argument);
  require(e.detail.find(": ") != std::string::npos && e.detail.size() < 2000);
  require(nlohmann::json::accept(format_error(e).body));
}

void check_event(const std::string& event) {
  require(event.starts_with("data: ") && event.find('\n') == event.size() - 2);
  require(nlohmann::json::accept(event.substr(6)));
}

void check_text(const std::string& text) {
  for (const auto kind : {api_kind::completion, api_kind::chat}) {
    const answer_head head{kind, "id", 0, "m"};
    choice_text choice;
    choice.text = text;
    choice.logprobs = {{text.substr(0, text.size() / 2), -1.0f, {{text, -2.0f}}, 0}};
    check_event(format_chunk(head, choice, true));
    require(nlohmann::json::accept(format_answer(head, {choice}, {})));
  }
  require(nlohmann::json::accept(format_text(text)));
  choice_text said;
  said.text = said.reasoning = text;
  said.calls.push_back({0, "1", text.empty() ? "f" : text, text});
  said.finish_reason = "stop";
  for (const auto& writer : {messages_writer({}, 1), responses_writer({}, "{}")}) {
    require(nlohmann::json::accept(writer->whole({said}, {})));
    for (const auto& event : {writer->begin(), writer->piece(said), writer->end({})})
      require(event.starts_with("event: ") && event.ends_with("\n\n"));
  }
}

void check_common(const api_request& r) {
  const auto& s = r.sampling;
  require(s.temperature >= 0 && s.temperature <= 2 && s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 &&
          s.min_p <= 1);
  require(s.top_k >= -1 && s.repetition_penalty > 0 && s.logprobs >= -1 && s.logprobs <= 20);
  require(s.stop.size() <= 16 && s.stop_token_ids.size() <= 1024 && s.logit_bias.size() <= 4096);
  for (const auto& [id, bias] : s.logit_bias) require(id >= 0 && bias >= -100 && bias <= 100);
  for (const auto id : s.stop_token_ids) require(id >= 0);
  require(r.n >= 1 && r.n <= 128 && r.priority.value_or(1) <= 2 && r.cache_salt.size() <= 1024);
}

void check_messages(const std::vector<chat_message>& messages) {
  require(!messages.empty());
  for (const auto& m : messages) check_text(m.content);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body{reinterpret_cast<const char*>(data) + 1, size - 1};
  switch (data[0] % 8) {
    case 0: {
      const auto r = parse_completion(body);
      if (!r) return check_error(r.error()), 0;
      check_common(*r);
      require(!r->prompts.empty() && r->prompts.size() <= 1024);
      for (const auto& p : r->prompts) {
        if (const auto* text = std::get_if<std::string>(&p)) check_text(*text);
      }
      break;
    }
    case 1: {
      const auto r = parse_chat(body);
      if (!r) return check_error(r.error()), 0;
      check_common(*r);
      check_messages(r->messages);
      break;
    }
    case 2: {
      const auto r = parse_tokenize(body);
      if (!r) return check_error(r.error()), 0;
      if (const auto* messages = std::get_if<chat_prompt>(&r->input)) check_messages(messages->messages);
      break;
    }
    case 4: {
      const auto r = parse_messages(body);
      if (!r) return check_error(r.error()), 0;
      check_common(*r);
      check_messages(r->messages);
      break;
    }
    case 5: {
      const auto r = parse_responses(body);
      if (!r) return check_error(r.error()), 0;
      check_common(*r);
      check_messages(r->messages);
      require(nlohmann::json::accept(r->echo));
      break;
    }
    case 6: {
      const auto r = parse_embeddings(body);
      if (!r) return check_error(r.error()), 0;
      require(!r->inputs.empty() && r->sampling.pooling != pooling_kind::none);
      break;
    }
    default: {
      const auto r = parse_detokenize(body);
      if (!r) return check_error(r.error()), 0;
      for (const auto id : r->tokens) require(id >= 0);
    }
  }
  return 0;
}
