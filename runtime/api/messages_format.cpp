#include <utility>

#include "runtime/api/json_text.hpp"
#include "runtime/api/messages_api.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

std::string stop_reason(const choice_text& c) {
  if (c.finish_reason == "length") return "max_tokens";
  if (c.finish_reason == "tool_calls") return "tool_use";
  return c.stopped_by.empty() ? "end_turn" : "stop_sequence";
}

json stop_sequence(const choice_text& c) {
  return c.finish_reason == "stop" && !c.stopped_by.empty() ? json(c.stopped_by) : json(nullptr);
}

/// Tokens that came from the cache are counted apart, and so are the others that were put there to be kept.
json messages_usage(const usage_counts& u) {
  return {{"input_tokens", u.prompt_tokens - u.cached_tokens - u.created_tokens},
          {"cache_creation_input_tokens", u.created_tokens},
          {"cache_creation",
           {{"ephemeral_5m_input_tokens", u.created_tokens - u.created_long_tokens},
            {"ephemeral_1h_input_tokens", u.created_long_tokens}}},
          {"cache_read_input_tokens", u.cached_tokens},
          {"output_tokens", u.completion_tokens}};
}

/// Arguments as the object that they are; of a call that was cut nothing is left.
json input_of(const std::string& arguments) {
  auto v = json::parse(arguments, nullptr, false);
  return v.is_object() ? v : json::object();
}

class messages_answer final : public answer_writer {
 public:
  messages_answer(answer_head head, std::uint32_t prompt_tokens)
      : head_(std::move(head)), prompt_tokens_(prompt_tokens) {}

  std::string whole(const std::vector<choice_text>& choices, const usage_counts& usage) override {
    const auto& c = choices.front();
    json content = json::array();
    if (!c.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", c.reasoning}, {"signature", ""}});
    if (!c.text.empty()) content.push_back({{"type", "text"}, {"text", c.text}});
    for (const auto& call : c.calls)
      content.push_back(
          {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input_of(call.arguments)}});
    return text_of(message(std::move(content), stop_reason(c), stop_sequence(c), messages_usage(usage)));
  }

  std::string begin() override {
    return named_event(
        "message_start",
        {{"type", "message_start"},
         {"message", message(json::array(), nullptr, nullptr, messages_usage({prompt_tokens_, 0, 0, 0}))}});
  }

  std::string piece(const choice_text& c) override {
    std::string out;
    if (!c.reasoning.empty()) {
      out += open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      out += delta({{"type", "thinking_delta"}, {"thinking", c.reasoning}});
    }
    if (!c.text.empty()) {
      out += open("text", {{"type", "text"}, {"text", ""}});
      out += delta({{"type", "text_delta"}, {"text", c.text}});
    }
    for (const auto& call : c.calls) {
      if (!call.name.empty()) {
        out += close();
        out += open("tool_use",
                    {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", json::object()}});
      }
      if (!call.arguments.empty())
        out += delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    }
    if (!c.finish_reason.empty()) last_ = c;
    return out;
  }

  std::string end(const usage_counts& usage) override {
    return close() +
           named_event(
               "message_delta",
               {{"type", "message_delta"},
                {"delta", {{"stop_reason", stop_reason(last_)}, {"stop_sequence", stop_sequence(last_)}}},
                {"usage", messages_usage(usage)}}) +
           named_event("message_stop", {{"type", "message_stop"}});
  }

  api_error refusal(const error& cause, std::int64_t retry_after_s) const override {
    return format_error(cause, retry_after_s, {}, error_form::anthropic);
  }
  std::string error_event(const error& cause) override {
    return named_event("error", json::parse(refusal(cause, 0).body));
  }

 private:
  json message(json content, json reason, json sequence, json usage) const {
    return {{"id", head_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", head_.model},
            {"content", std::move(content)},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)},
            {"usage", std::move(usage)}};
  }

  /// Begins a block, unless one of this kind is open.
  std::string open(std::string kind, json block) {
    if (open_ == kind) return {};
    auto out = close();
    open_ = std::move(kind);
    return out + named_event("content_block_start", {{"type", "content_block_start"},
                                                     {"index", index_},
                                                     {"content_block", std::move(block)}});
  }
  std::string delta(json what) const {
    return named_event("content_block_delta",
                       {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(what)}});
  }
  std::string close() {
    if (std::exchange(open_, {}).empty()) return {};
    return named_event("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }

  const answer_head head_;
  const std::uint32_t prompt_tokens_;
  std::string open_;  ///< kind of the block that is open; empty: none
  std::uint32_t index_ = 0;
  choice_text last_;  ///< the piece that said why the answer ends
};

const char* error_type(unsigned status) {
  switch (status) {
    case 400:
    case 405:
    case 415:
      return "invalid_request_error";
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return "api_error";
  }
}

}  // namespace

std::unique_ptr<answer_writer> messages_writer(answer_head head, std::uint32_t prompt_tokens) {
  return std::make_unique<messages_answer>(std::move(head), prompt_tokens);
}

api_error messages_error(const error& cause, unsigned status) {
  const auto said = cause.detail.empty() ? std::string{to_string(cause.code)} : cause.detail;
  return {status, text_of({{"type", "error"}, {"error", {{"type", error_type(status)}, {"message", said}}}}),
          0};
}

std::string format_token_count(std::size_t tokens) { return text_of({{"input_tokens", tokens}}); }

}  // namespace mooncaf
