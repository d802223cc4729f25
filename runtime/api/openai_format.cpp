#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/api/json_text.hpp"
#include "runtime/api/messages_api.hpp"
#include "runtime/api/openai.hpp"
#include "runtime/base/utf8.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

std::string data_event(const json& value) { return "data: " + text_of(value) + "\n\n"; }

/// Kept tokens are told under vLLM's name for them, where there are some.
json prompt_details(const usage_counts& u) {
  json out = {{"cached_tokens", u.cached_tokens}};
  if (u.created_tokens > 0) out["created_cache_tokens"] = u.created_tokens;
  return out;
}

json usage_json(const usage_counts& u) {
  json out = {{"prompt_tokens", u.prompt_tokens},
              {"completion_tokens", u.completion_tokens},
              {"total_tokens", u.prompt_tokens + u.completion_tokens},
              {"prompt_tokens_details", prompt_details(u)}};
  if (u.reasoning_tokens > 0) out["completion_tokens_details"] = {{"reasoning_tokens", u.reasoning_tokens}};
  return out;
}

json bytes_of(const std::string& text) {
  json out = json::array();
  for (const unsigned char c : text) out.push_back(c);
  return out;
}

/// A token that is part of a character as OpenAI's completions write it, "bytes:\\xf0\\x9f": two of them must
/// not look alike as keys.
std::string token_name(const std::string& text) {
  if (utf8::is_well_formed(text)) return text;
  std::string out = "bytes:";
  for (const unsigned char c : text) {
    char hex[5];
    std::snprintf(hex, sizeof hex, "\\x%02x", c);
    out += hex;
  }
  return out;
}

json completion_logprobs(const choice_text& c) {
  json tokens = json::array(), values = json::array(), tops = json::array(), offsets = json::array();
  for (const auto& t : *c.logprobs) {
    tokens.push_back(token_name(t.text));
    json top = json::object();
    for (const auto& [text, logprob] : t.top) top[token_name(text)] = logprob;
    // The token itself is always there, likely or not.
    if (t.logprob) top[token_name(t.text)] = *t.logprob;
    values.push_back(t.logprob ? json(*t.logprob) : json(nullptr));
    tops.push_back(t.logprob ? std::move(top) : json(nullptr));
    offsets.push_back(t.offset);
  }
  return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

json chat_logprobs(const choice_text& c) {
  json content = json::array();
  for (const auto& t : *c.logprobs) {
    json top = json::array();
    for (const auto& [text, logprob] : t.top) {
      top.push_back({{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}});
    }
    content.push_back({{"token", t.text},
                       {"logprob", t.logprob.value_or(0)},
                       {"bytes", bytes_of(t.text)},
                       {"top_logprobs", top}});
  }
  return {{"content", content}};
}

json logprobs_json(api_kind kind, const choice_text& c) {
  if (!c.logprobs) return nullptr;
  return kind == api_kind::chat ? chat_logprobs(c) : completion_logprobs(c);
}

/// vLLM's names and places: the prompt's ids stand in a completion's choice, and on top of a chat.
void put_ids(api_kind kind, const choice_text& c, json& answer, json& choice) {
  if (!c.token_ids) return;
  choice["token_ids"] = *c.token_ids;
  if (!c.prompt_token_ids.empty())
    (kind == api_kind::chat ? answer : choice)["prompt_token_ids"] = c.prompt_token_ids;
}

/// vLLM's name, form and place: for each token an object of ids, the token's own first.
void put_prompt_logprobs(api_kind kind, const choice_text& c, json& answer, json& choice) {
  if (!c.prompt_logprobs) return;
  json all = json::array();
  for (const auto& t : *c.prompt_logprobs) {
    if (!t.logprob) {
      all.push_back(nullptr);
      continue;
    }
    json one = json::object();
    const auto own = std::ranges::find(t.top_ids, t.id);
    const auto rank = own == t.top_ids.end() ? json(nullptr) : json(own - t.top_ids.begin() + 1);
    one[std::to_string(t.id)] = {{"logprob", *t.logprob}, {"rank", rank}, {"decoded_token", t.text}};
    for (std::size_t i = 0; i < t.top_ids.size(); ++i)
      one[std::to_string(t.top_ids[i])] = {
          {"logprob", t.top[i].second}, {"rank", i + 1}, {"decoded_token", t.top[i].first}};
    all.push_back(std::move(one));
  }
  (kind == api_kind::chat ? answer : choice)["prompt_logprobs"] = std::move(all);
}

json head_json(const answer_head& head, std::string_view object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

}  // namespace

namespace {

/// @param piece  of a stream, which has an index, and a name only the first time.
json calls_json(const std::vector<tool_call_text>& calls, bool piece) {
  json out = json::array();
  for (const auto& c : calls) {
    json call = json::object();
    if (piece) call["index"] = c.index;
    json function = json::object();
    if (!piece || !c.name.empty()) {
      call["id"] = c.id;
      call["type"] = "function";
      function["name"] = c.name;
    }
    function["arguments"] = c.arguments;
    call["function"] = std::move(function);
    out.push_back(std::move(call));
  }
  return out;
}

}  // namespace

std::uint32_t count_characters(std::string_view text) noexcept {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string format_answer(const answer_head& head, const std::vector<choice_text>& choices,
                          const usage_counts& usage) {
  const bool chat = head.kind == api_kind::chat;
  json out = head_json(head, chat ? "chat.completion" : "text_completion");
  out["choices"] = json::array();
  for (const auto& c : choices) {
    json choice = {{"index", c.index}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", c.text}};
      if (c.text.empty() && !(c.calls.empty() && c.reasoning.empty())) choice["message"]["content"] = nullptr;
      if (!c.reasoning.empty()) choice["message"]["reasoning_content"] = c.reasoning;
      if (!c.calls.empty()) choice["message"]["tool_calls"] = calls_json(c.calls, false);
    } else {
      choice["text"] = c.text;
    }
    choice["logprobs"] = logprobs_json(head.kind, c);
    choice["finish_reason"] = c.finish_reason;
    put_ids(head.kind, c, out, choice);
    put_prompt_logprobs(head.kind, c, out, choice);
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage_json(usage);
  return text_of(out);
}

std::string format_chunk(const answer_head& head, const choice_text& c, bool usage_null) {
  const bool chat = head.kind == api_kind::chat;
  json out = head_json(head, chat ? "chat.completion.chunk" : "text_completion");
  json choice = {{"index", c.index}};
  if (chat) {
    json delta = json::object();
    if (c.role) delta["role"] = "assistant";
    if (!c.reasoning.empty()) delta["reasoning_content"] = c.reasoning;
    const bool says = !c.text.empty() || (c.calls.empty() && c.reasoning.empty() && c.finish_reason.empty());
    if (c.role || says) delta["content"] = c.text;
    if (!c.calls.empty()) delta["tool_calls"] = calls_json(c.calls, true);
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = c.text;
  }
  choice["logprobs"] = logprobs_json(head.kind, c);
  choice["finish_reason"] = c.finish_reason.empty() ? json(nullptr) : json(c.finish_reason);
  put_ids(head.kind, c, out, choice);
  put_prompt_logprobs(head.kind, c, out, choice);
  out["choices"] = json::array({std::move(choice)});
  if (usage_null) out["usage"] = nullptr;
  return data_event(out);
}

std::string format_usage_chunk(const answer_head& head, const usage_counts& usage) {
  json out = head_json(head, head.kind == api_kind::chat ? "chat.completion.chunk" : "text_completion");
  out["choices"] = json::array();
  out["usage"] = usage_json(usage);
  return data_event(out);
}

namespace {

struct error_class {
  unsigned status;
  const char* type;
};

error_class classify(ec code) {
  switch (code) {
    case ec::invalid_argument:
    case ec::unsupported:
      return {400, "invalid_request_error"};
    case ec::unauthenticated:
      return {401, "authentication_error"};
    case ec::not_found:
      return {404, "not_found_error"};
    case ec::out_of_space:  // all KV memory is in use: the same as a full queue to a client
    case ec::overloaded:
    case ec::slo_unreachable:
      return {429, "rate_limit_error"};
    case ec::unavailable:
    case ec::peer_lost:
      return {503, "service_unavailable_error"};
    case ec::timed_out:
      return {504, "timeout_error"};
    default:
      return {500, "internal_error"};
  }
}

json error_json(const error& cause, std::string_view code = {}) {
  const auto colon = cause.detail.find(": ");
  const bool names_field = (cause.code == ec::invalid_argument || !code.empty()) &&
                           colon != std::string::npos && cause.detail.find(' ') > colon;
  return {{"error",
           {{"message", cause.detail.empty() ? std::string{to_string(cause.code)} : cause.detail},
            {"type", code.empty() ? classify(cause.code).type : "invalid_request_error"},
            {"param", names_field ? json(cause.detail.substr(0, colon)) : json(nullptr)},
            {"code", std::string{code.empty() ? to_string(cause.code) : code}}}}};
}

}  // namespace

api_error format_error(const error& cause, std::int64_t retry_after_s, std::string_view code,
                       error_form form) {
  if (form == error_form::anthropic) {
    auto out = messages_error(cause, classify(cause.code).status);
    out.retry_after_s = retry_after_s;
    return out;
  }
  return {classify(cause.code).status, text_of(error_json(cause, code)), retry_after_s};
}

std::string format_error_event(const error& cause) { return data_event(error_json(cause)); }

namespace {

json model_json(const model_card& model, std::int64_t created, std::uint32_t context_length) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", created},
          {"owned_by", "mooncaf"},
          {"parent", model.parent.empty() ? json() : json(model.parent)},
          {"max_model_len", context_length}};
}

}  // namespace

std::string format_models(const std::vector<model_card>& models, std::int64_t created,
                          std::uint32_t context_length) {
  auto list = json::array();
  for (const auto& m : models) list.push_back(model_json(m, created, context_length));
  return text_of(json{{"object", "list"}, {"data", std::move(list)}});
}

std::string format_model(const model_card& model, std::int64_t created, std::uint32_t context_length) {
  return text_of(model_json(model, created, context_length));
}

std::string format_tokens(const std::vector<std::int32_t>& tokens, std::uint32_t context_length) {
  return text_of(json{{"count", tokens.size()}, {"max_model_len", context_length}, {"tokens", tokens}});
}

std::string format_text(std::string_view text) { return text_of(json{{"prompt", std::string{text}}}); }

namespace {

class openai_answer final : public answer_writer {
 public:
  openai_answer(answer_head head, bool include_usage)
      : head_(std::move(head)), include_usage_(include_usage) {}

  std::string whole(const std::vector<choice_text>& choices, const usage_counts& usage) override {
    return format_answer(head_, choices, usage);
  }
  std::string piece(const choice_text& piece) override { return format_chunk(head_, piece, include_usage_); }
  std::string end(const usage_counts& usage) override {
    return (include_usage_ ? format_usage_chunk(head_, usage) : "") + std::string{done_event};
  }
  api_error refusal(const error& cause, std::int64_t retry_after_s) const override {
    return format_error(cause, retry_after_s);
  }
  std::string error_event(const error& cause) override { return format_error_event(cause); }

 private:
  const answer_head head_;
  const bool include_usage_;
};

}  // namespace

std::unique_ptr<answer_writer> openai_writer(answer_head head, bool include_usage) {
  return std::make_unique<openai_answer>(std::move(head), include_usage);
}

}  // namespace mooncaf
