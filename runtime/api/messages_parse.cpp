#include <utility>

#include "runtime/api/answer_form.hpp"
#include "runtime/api/chat_messages.hpp"
#include "runtime/api/messages_api.hpp"
#include "runtime/api/request_reading.hpp"

namespace mooncaf {

namespace {

using json = body_json;

std::string type_of(const json& part) {
  const auto i = part.is_object() ? part.find("type") : part.end();
  return part.is_object() && i != part.end() && i->is_string() ? i->get<std::string>() : std::string{};
}

/// The string member `name` of a part; complains if it is none.
std::string said(body_reader& in, const json& part, const char* name, const std::string& where) {
  const auto i = part.find(name);
  if (i != part.end() && i->is_string()) return i->get<std::string>();
  in.complain(where + "." + name, "must be a string");
  return {};
}

void append(std::string& to, const std::string& text, bool first) {
  if (!first) to += '\n';
  to += text;
}

/// Marks that parts of a body carry.
class mark_reader {
 public:
  static constexpr std::size_t most = 4;  // as Anthropic's API has it

  mark_reader(body_reader& in, std::vector<prefix_mark>& out) : in_(in), out_(out) {}

  /// @param messages,bytes  as in `prefix_mark`.
  void read(const json& part, const std::string& where, std::uint32_t messages,
            std::size_t bytes = std::string::npos) {
    const auto i = part.is_object() ? part.find("cache_control") : part.end();
    if (!part.is_object() || i == part.end() || i->is_null()) return;
    const auto at = where.empty() ? std::string{"cache_control"} : where + ".cache_control";
    if (type_of(*i) != "ephemeral") return in_.complain(at, "must be of type ephemeral");
    const auto ttl = i->value("ttl", json("5m"));
    if (ttl != "5m" && ttl != "1h") return in_.complain(at + ".ttl", "must be 5m or 1h");
    if (out_.size() == most)
      return in_.complain(at, "is one more than the " + std::to_string(most) + " that a request may have");
    out_.push_back({messages, bytes, ttl == "1h" ? std::chrono::seconds(3600) : std::chrono::seconds(300)});
  }

 private:
  body_reader& in_;
  std::vector<prefix_mark>& out_;
};

/// Text, or parts of type text, which are joined by line ends.
/// @param mark  is told of each part, and of the text up to its end.
template <class Mark>
std::string text_content(body_reader& in, const json& content, const std::string& where, Mark mark) {
  if (content.is_string()) return content.get<std::string>();
  std::string out;
  if (!content.is_array()) return in.complain(where, "must be a string or a list of text parts"), out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const auto at = where + "[" + std::to_string(i) + "]";
    if (type_of(content[i]) != "text") return in.complain(at, "must be of type text"), out;
    append(out, said(in, content[i], "text", at), i == 0);
    mark(content[i], at, out.size());
  }
  return out;
}

/// One message becomes several where it holds results of tools: they come before the user's words.
class message_reader {
 public:
  message_reader(body_reader& in, std::vector<chat_message>& out, mark_reader& marks)
      : in_(in), out_(out), marks_(marks) {}

  void read(const json& m, const std::string& where) {
    const auto role = m.is_object() && m.contains("role") && m["role"].is_string()
                          ? m["role"].get<std::string>()
                          : std::string{};
    if (role != "user" && role != "assistant")
      return in_.complain(where + ".role", "must be user or assistant");
    made_ = {};
    made_.role = role;
    texts_ = 0;
    const auto content = m.find("content");
    if (content == m.end()) return in_.complain(where + ".content", "is required");
    bool says = !content->is_array();
    if (content->is_string()) made_.content = content->get<std::string>();
    else if (!content->is_array()) return in_.complain(where + ".content", "must be a string or a list");
    for (std::size_t i = 0; content->is_array() && i < content->size(); ++i) {
      const auto at = where + ".content[" + std::to_string(i) + "]";
      const bool own = read_part((*content)[i], at);
      says |= own;
      if (in_.problem()) return;
      // Results of tools are messages of their own, whole by now; the others' text grows.
      const auto before = static_cast<std::uint32_t>(out_.size());
      if (own)
        marks_.read((*content)[i], at, before + 1,
                    made_.tool_calls.empty() ? made_.content.size() : std::string::npos);
      else marks_.read((*content)[i], at, before);
    }
    if (!made_.tool_calls.empty()) made_.bare = bare_content::unsaid;
    if (says || content->empty()) out_.push_back(std::move(made_));
  }

 private:
  /// @returns whether the part belongs to the message itself.
  bool read_part(const json& part, const std::string& at) {
    const auto type = type_of(part);
    const bool assistant = made_.role == "assistant";
    if (type == "text") {
      append(made_.content, said(in_, part, "text", at), texts_++ == 0);
    } else if (assistant && type == "thinking") {
      made_.reasoning_content += said(in_, part, "thinking", at);
    } else if (assistant && type == "tool_use") {
      const auto input = part.find("input");
      if (input == part.end() || !input->is_object()) in_.complain(at + ".input", "must be an object");
      else
        made_.tool_calls.push_back(
            {said(in_, part, "id", at), said(in_, part, "name", at), text_of_json(*input)});
    } else if (!assistant && type == "tool_result") {
      chat_message result;
      result.role = "tool";
      result.tool_call_id = said(in_, part, "tool_use_id", at);
      if (const auto c = part.find("content"); c != part.end() && !c->is_null())
        result.content = text_content(
            in_, *c, at + ".content", [&](const json& text, const std::string& where, std::size_t bytes) {
              marks_.read(text, where, static_cast<std::uint32_t>(out_.size()) + 1, bytes);
            });
      out_.push_back(std::move(result));
      return false;
    } else if (!(assistant && type == "redacted_thinking")) {
      in_.complain(at, "is not supported: type '" + shortened(type) + "' of the " + made_.role);
    }
    return true;
  }

  body_reader& in_;
  std::vector<chat_message>& out_;
  mark_reader& marks_;
  chat_message made_;
  int texts_ = 0;
};

/// Tools and their choice as chats have them.
void read_message_tools(body_reader& in, chat_request& out) {
  json chat = json::object();
  if (const auto* tools = in.find("tools")) {
    if (!tools->is_array()) return in.complain("tools", "must be a list");
    auto& list = chat["tools"] = json::array();
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const auto& t = (*tools)[i];
      const auto at = "tools[" + std::to_string(i) + "]";
      if (const auto type = type_of(t); !type.empty() && type != "custom")
        return in.complain(at,
                           "is not supported: type '" + shortened(type) + "'; only tools of the client are");
      if (!t.is_object() || !t.contains("input_schema") || !t["input_schema"].is_object())
        return in.complain(at + ".input_schema", "must be a JSON schema");
      json function = {{"name", t.value("name", json())}};
      if (t.contains("description")) function["description"] = t["description"];
      function["parameters"] = t["input_schema"];
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (const auto* choice = in.find("tool_choice")) {
    const auto type = type_of(*choice);
    if (type == "tool") {
      chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice->value("name", json())}}}};
    } else if (type == "auto" || type == "any" || type == "none") {
      chat["tool_choice"] = type == "any" ? "required" : type;
    } else {
      return in.complain("tool_choice", "must be of type auto, any, none, or tool with a name");
    }
    const auto alone = choice->find("disable_parallel_tool_use");
    if (alone != choice->end()) {
      if (!alone->is_boolean())
        return in.complain("tool_choice", "disable_parallel_tool_use must be true or false");
      chat["parallel_tool_calls"] = !alone->get<bool>();
    }
  }
  body_reader inner{chat};
  read_tools(inner, out);
  in.complain(inner);
}

/// The answer's form, which clients put in two places as the API grew older.
void read_output(body_reader& in, chat_request& out) {
  if (const auto* config = in.find("output_config")) {
    if (!config->is_object()) return in.complain("output_config", "must be an object");
    if (const auto i = config->find("format"); i != config->end() && !i->is_null())
      read_format(in, "output_config", *i, out);
  }
  if (const auto* format = in.find("output_format")) {
    if (!out.form_field.empty())
      return in.complain("output_format",
                         "asks for a form of the answer, as output_config does; only one may");
    read_format(in, "output_format", *format, out);
  }
}

/// Sets the variables that templates of models with thoughts look for.
void read_thinking(body_reader& in, chat_request& out) {
  const auto* v = in.find("thinking");
  if (!v) return;
  const auto type = type_of(*v);
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return in.complain("thinking", "must be of type enabled, disabled or adaptive");
  if (type != "adaptive")
    out.variables = type == "enabled" ? R"({"enable_thinking": true, "thinking": true})"
                                      : R"({"enable_thinking": false, "thinking": false})";
}

}  // namespace

/// The order is that of the complaints: a body with several mistakes is told the first in reading order.
result<chat_request> parse_messages(std::string_view body, bool counts_only,
                                    const generation_defaults& defaults) {
  const auto parsed = parse_body(body, body_endpoint::messages);
  if (!parsed) return fail(parsed.error());
  body_reader in{*parsed};
  chat_request out;
  begin_with(defaults, out.sampling);
  read_sampling(in, out);
  read_service(in, out);
  read_stop(in, "stop_sequences", out.sampling);
  in.boolean("stream", out.stream);
  out.sampling.max_tokens = 0;
  in.number("max_tokens", out.sampling.max_tokens, 1, 1 << 30);
  out.max_tokens_given = in.find("max_tokens") != nullptr;
  if (!out.max_tokens_given && !counts_only) in.complain("max_tokens", "is required");
  mark_reader marks{in, out.keep};
  // Tools come before all messages, whatever the template makes of them.
  if (const auto* tools = in.find("tools"); tools != nullptr && tools->is_array())
    for (std::size_t i = 0; i < tools->size(); ++i)
      marks.read((*tools)[i], "tools[" + std::to_string(i) + "]", 0);
  if (const auto* system = in.find("system"))
    out.messages.push_back({"system",
                            text_content(in, *system, "system",
                                         [&](const json& part, const std::string& at, std::size_t bytes) {
                                           marks.read(part, at, 1, bytes);
                                         }),
                            {},
                            {},
                            {},
                            {}});
  const auto* messages = in.find("messages");
  if (!messages) in.complain("messages", "is required");
  else if (!messages->is_array() || messages->empty())
    in.complain("messages", "must be a list of at least one message");
  message_reader reader{in, out.messages, marks};
  for (std::size_t i = 0; !in.problem() && i < messages->size(); ++i)
    reader.read((*messages)[i], "messages[" + std::to_string(i) + "]");
  if (!in.problem()) marks.read(*parsed, {}, prefix_mark::all);
  if (!in.problem() && out.messages.back().role == "assistant" && out.messages.back().tool_calls.empty()) {
    out.continue_final_message = true;
    out.add_generation_prompt = false;
  }
  read_message_tools(in, out);
  read_thinking(in, out);
  read_output(in, out);
  if (const auto problem = in.problem()) return fail(*problem);
  return out;
}

}  // namespace mooncaf
