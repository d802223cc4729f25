#include "actors/http/chat_messages.hpp"

#include <utility>

namespace mooncaf {

namespace {

using json = body_json;

/// Content is a string, or a list of text parts, which are joined by line ends, as vLLM does.
std::optional<std::string> content_of(const json& message) {
  const auto i = message.find("content");
  if (i == message.end() || i->is_null()) return std::string{};
  if (i->is_string()) return i->get<std::string>();
  if (!i->is_array()) return std::nullopt;
  std::string out;
  for (const auto& part : *i) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      return std::nullopt;
    }
    if (&part != &i->front()) out += '\n';
    out += part["text"].get_ref<const std::string&>();
  }
  return out;
}

/// The string member `name`; empty if it is absent or null.
std::optional<std::string> member(const json& of, const char* name) {
  const auto i = of.find(name);
  if (i == of.end() || i->is_null()) return std::string{};
  if (!i->is_string()) return std::nullopt;
  return i->get<std::string>();
}

/// A call as an answer had it. Arguments are the text of an object, or, as some clients send them, the
/// object.
std::optional<tool_call> call_of(const json& given) {
  const auto function = given.is_object() ? given.find("function") : given.end();
  if (!given.is_object() || function == given.end() || !function->is_object()) return std::nullopt;
  const auto id = member(given, "id"), name = member(*function, "name");
  if (!id || !name || name->empty()) return std::nullopt;
  tool_call out{*id, *name, "{}"};
  if (const auto i = function->find("arguments"); i != function->end() && !i->is_null())
    out.arguments = i->is_string() ? i->get<std::string>() : text_of_json(*i);
  return out;
}

void read_message(body_reader& in, const json& m, const std::string& where, std::vector<chat_message>& out) {
  if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
    return in.complain(where, "needs a role");
  if (const auto i = m.find("function_call"); i != m.end() && !i->is_null())
    return in.complain(where + ".function_call", "is not supported; use tool_calls");
  chat_message made;
  made.role = m["role"].get<std::string>();
  const auto content = content_of(m);
  if (!content) return in.complain(where + ".content", "must be a string or a list of text parts");
  made.content = *content;
  for (const auto& [name, to] : {std::pair{"name", &chat_message::name},
                                 {"tool_call_id", &chat_message::tool_call_id},
                                 {"reasoning_content", &chat_message::reasoning_content}}) {
    const auto said = member(m, name);
    if (!said) return in.complain(where + "." + name, "must be a string");
    made.*to = *said;
  }
  if (const auto calls = m.find("tool_calls"); calls != m.end() && !calls->is_null()) {
    if (!calls->is_array()) return in.complain(where + ".tool_calls", "must be a list");
    for (const auto& c : *calls) {
      auto call = call_of(c);
      if (!call)
        return in.complain(where + ".tool_calls", "must have an id and a function with name and arguments");
      made.tool_calls.push_back(std::move(*call));
    }
  }
  if (!made.tool_calls.empty() && made.role != "assistant")
    return in.complain(where + ".tool_calls", "belong to the assistant");
  out.push_back(std::move(made));
}

}  // namespace

std::string text_of_json(const json& v) { return v.dump(-1, ' ', false, json::error_handler_t::replace); }

void read_messages(body_reader& in, chat_prompt& out) {
  const auto* v = in.find("messages");
  if (!v) return in.complain("messages", "is required");
  if (!v->is_array() || v->empty()) return in.complain("messages", "must be a list of at least one message");
  for (std::size_t i = 0; i < v->size(); ++i) {
    read_message(in, (*v)[i], "messages[" + std::to_string(i) + "]", out.messages);
    if (in.problem()) return;
  }
}

void read_template_options(body_reader& in, chat_prompt& out) {
  if (const auto* more = in.find("chat_template_kwargs")) {
    if (!more->is_object()) return in.complain("chat_template_kwargs", "must be an object");
    if (!more->empty()) out.variables = text_of_json(*more);
  }
  std::optional<bool> opens;
  in.boolean("add_generation_prompt", opens);
  in.boolean("continue_final_message", out.continue_final_message);
  if (out.continue_final_message && opens.value_or(false))
    return in.complain("continue_final_message", "goes with add_generation_prompt: false");
  out.add_generation_prompt = opens.value_or(!out.continue_final_message);
}

}  // namespace mooncaf
