#include <utility>

#include "runtime/api/json_text.hpp"
#include "runtime/api/responses_api.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

json responses_usage(const usage_counts& u) {
  return {{"input_tokens", u.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", u.cached_tokens}}},
          {"output_tokens", u.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", u.reasoning_tokens}}},
          {"total_tokens", u.prompt_tokens + u.completion_tokens}};
}

json text_part(const std::string& text) {
  return {
      {"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
}

json reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }

/// One part of an answer; while it streams, the item that is open.
struct item {
  enum class kind : std::uint8_t { none, reasoning, message, call };
  kind what = kind::none;
  std::string id;
  std::string text;  ///< of a call its arguments
  std::string call_id, name;

  json as_json(std::string_view status) const {
    json out = {{"id", id}};
    if (what == kind::reasoning) {
      out["type"] = "reasoning";
      out["summary"] = json::array();
      out["content"] = text.empty() ? json::array() : json::array({reasoning_part(text)});
    } else if (what == kind::message) {
      out["type"] = "message";
      out["role"] = "assistant";
      out["content"] = status == "in_progress" ? json::array() : json::array({text_part(text)});
    } else {
      out["type"] = "function_call";
      out["call_id"] = call_id;
      out["name"] = name;
      out["arguments"] = text;
    }
    out["status"] = status;
    return out;
  }
};

class responses_answer final : public answer_writer {
 public:
  responses_answer(answer_head head, std::string echo)
      : head_(std::move(head)), echo_(json::parse(echo, nullptr, false)) {}

  std::string whole(const std::vector<choice_text>& choices, const usage_counts& usage) override {
    for (const auto& piece : choices) take(piece);
    close();
    return text_of(response(status(), usage));
  }

  std::string begin() override {
    events_.clear();
    tell("response.created", {{"response", response("in_progress", {})}});
    tell("response.in_progress", {{"response", response("in_progress", {})}});
    return std::exchange(events_, {});
  }

  std::string piece(const choice_text& piece) override {
    take(piece);
    return std::exchange(events_, {});
  }

  std::string end(const usage_counts& usage) override {
    close();
    tell(reason_ == "length" ? "response.incomplete" : "response.completed",
         {{"response", response(status(), usage)}});
    return std::exchange(events_, {});
  }

  api_error refusal(const error& cause, std::int64_t retry_after_s) const override {
    return format_error(cause, retry_after_s);
  }

  std::string error_event(const error& cause) override {
    events_.clear();
    const auto why = json::parse(refusal(cause, 0).body).at("error");
    auto failed = response("failed", {});
    failed["error"] = {{"code", "server_error"}, {"message", why.at("message")}};
    tell("response.failed", {{"response", std::move(failed)}});
    return std::exchange(events_, {});
  }

 private:
  std::string_view status() const { return reason_ == "length" ? "incomplete" : "completed"; }

  json response(std::string_view status, const usage_counts& usage) const {
    json out = {{"id", head_.id}, {"object", "response"}, {"created_at", head_.created}, {"status", status}};
    out["error"] = nullptr;
    out["incomplete_details"] =
        status == "incomplete" ? json{{"reason", "max_output_tokens"}} : json(nullptr);
    out["model"] = head_.model;
    out["output"] = done_;
    out["previous_response_id"] = nullptr;
    out["store"] = false;
    out["truncation"] = "disabled";
    for (const auto& [name, value] : echo_.items()) out[name] = value;
    out["usage"] = status == "in_progress" ? json(nullptr) : responses_usage(usage);
    return out;
  }

  void tell(std::string_view name, json event) {
    json all = {{"type", name}, {"sequence_number", sequence_++}};
    all.update(event);
    events_ += named_event(name, all);
  }

  /// An event about the open item; with `part` about its content.
  void tell_of_item(std::string_view name, json event, bool part) {
    json all = {{"item_id", open_.id}, {"output_index", done_.size()}};
    if (part) all["content_index"] = 0;
    all.update(event);
    tell(name, std::move(all));
  }

  void take(const choice_text& c) {
    if (!c.reasoning.empty()) {
      open(item::kind::reasoning, "rs_", {}, {});
      add("response.reasoning_text.delta", c.reasoning, {});
    }
    if (!c.text.empty()) {
      open(item::kind::message, "msg_", {}, {});
      add("response.output_text.delta", c.text, {{"logprobs", json::array()}});
    }
    for (const auto& call : c.calls) {
      if (!call.name.empty()) {
        close();
        open(item::kind::call, "fc_", call.id, call.name);
      }
      if (!call.arguments.empty()) add("response.function_call_arguments.delta", call.arguments, {});
    }
    if (!c.finish_reason.empty()) reason_ = c.finish_reason;
  }

  void open(item::kind what, const char* prefix, std::string call_id, std::string name) {
    if (open_.what == what) return;
    close();
    open_ = {what,
             prefix + head_.id + "_" + std::to_string(done_.size()),
             {},
             std::move(call_id),
             std::move(name)};
    tell("response.output_item.added",
         {{"output_index", done_.size()}, {"item", open_.as_json("in_progress")}});
    if (what == item::kind::message)
      tell_of_item("response.content_part.added", {{"part", text_part("")}}, true);
  }

  void add(std::string_view event, const std::string& text, json more) {
    open_.text += text;
    json what = {{"delta", text}};
    if (!more.is_null()) what.update(more);
    tell_of_item(event, std::move(what), open_.what != item::kind::call);
  }

  void close() {
    switch (open_.what) {
      case item::kind::none:
        return;
      case item::kind::reasoning:
        tell_of_item("response.reasoning_text.done", {{"text", open_.text}}, true);
        break;
      case item::kind::message:
        tell_of_item("response.output_text.done", {{"text", open_.text}, {"logprobs", json::array()}}, true);
        tell_of_item("response.content_part.done", {{"part", text_part(open_.text)}}, true);
        break;
      case item::kind::call:
        tell_of_item("response.function_call_arguments.done",
                     {{"name", open_.name}, {"arguments", open_.text}}, false);
        break;
    }
    auto finished = open_.as_json("completed");
    tell("response.output_item.done", {{"output_index", done_.size()}, {"item", finished}});
    done_.push_back(std::move(finished));
    open_ = {};
  }

  const answer_head head_;
  const json echo_;
  item open_;
  json done_ = json::array();
  std::string reason_;
  std::string events_;
  std::uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<answer_writer> responses_writer(answer_head head, std::string echo) {
  return std::make_unique<responses_answer>(std::move(head), std::move(echo));
}

}  // namespace mooncaf
