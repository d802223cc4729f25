#include "runtime/api/chat_messages.hpp"

#include <algorithm>
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

/// Checks before it keeps: a message that is half right is refused with its place, and none of it is
/// rendered.
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
  if (const auto i = m.find("content"); !made.tool_calls.empty() && (i == m.end() || i->is_null()))
    made.bare = i == m.end() ? bare_content::absent : bare_content::null;
  if (!made.tool_calls.empty() && made.role != "assistant")
    return in.complain(where + ".tool_calls", "belong to the assistant");
  out.push_back(std::move(made));
}

constexpr std::size_t tools_limit = 128;
constexpr std::size_t name_limit = 64;

bool is_function_name(const std::string& name) {
  constexpr std::string_view others = "_-.";
  return !name.empty() && name.size() <= name_limit && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != others.npos;
  });
}

/// The name in {"type": "function", "function": {"name": …}}; empty if it is not that.
std::string function_name(const json& given) {
  if (!given.is_object() || given.value("type", json()) != "function") return {};
  const auto function = given.find("function");
  if (function == given.end() || !function->is_object()) return {};
  return member(*function, "name").value_or("");
}

}  // namespace

std::vector<tool_function> read_tool_list(body_reader& in, std::string& as_text) {
  std::vector<tool_function> out;
  const auto* v = in.find("tools");
  if (!v || (v->is_array() && v->empty())) return out;
  const auto wrong = [&](const std::string& where, const std::string& what) {
    in.complain(where, what);
    return std::vector<tool_function>{};
  };
  if (!v->is_array() || v->size() > tools_limit)
    return wrong("tools", "must be a list of at most " + std::to_string(tools_limit) + " functions");
  for (std::size_t i = 0; i < v->size(); ++i) {
    const auto where = "tools[" + std::to_string(i) + "]";
    tool_function made{function_name((*v)[i]), {}};
    if (made.name.empty()) return wrong(where, "must be of type function, with a function that has a name");
    if (!is_function_name(made.name))
      return wrong(where + ".function.name", "takes 1 to 64 letters, digits, '_', '-' and '.'");
    if (std::ranges::find(out, made.name, &tool_function::name) != out.end())
      return wrong(where + ".function.name", "is given twice");
    const auto& function = (*v)[i]["function"];
    if (const auto p = function.find("parameters"); p != function.end() && !p->is_null()) {
      if (!p->is_object()) return wrong(where + ".function.parameters", "must be a JSON schema");
      made.parameters = text_of_json(*p);
    }
    out.push_back(std::move(made));
  }
  as_text = text_of_json(*v);
  return out;
}

void read_tools(body_reader& in, chat_request& out) {
  out.functions = read_tool_list(in, out.tools);
  in.boolean("parallel_tool_calls", out.parallel_tool_calls);
  const auto* choice = in.find("tool_choice");
  if (choice && *choice == "none") {
    out.choice = tool_choice::none;
    out.functions.clear();
    out.tools.clear();
  } else if (choice && *choice == "required") {
    out.choice = tool_choice::required;
    if (out.functions.empty()) in.complain("tool_choice", "needs tools");
  } else if (choice && *choice != "auto") {
    const auto name = function_name(*choice);
    if (name.empty())
      return in.complain("tool_choice", "must be auto, none, required, or a function by its name");
    std::erase_if(out.functions, [&](const tool_function& f) { return f.name != name; });
    if (out.functions.empty()) in.complain("tool_choice", "'" + shortened(name) + "' is not among the tools");
    out.choice = tool_choice::required;
    out.parallel_tool_calls = false;
  }
}

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
