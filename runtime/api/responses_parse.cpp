#include <algorithm>
#include <utility>

#include "runtime/api/answer_form.hpp"
#include "runtime/api/chat_messages.hpp"
#include "runtime/api/request_reading.hpp"
#include "runtime/api/responses_api.hpp"

namespace mooncaf {

namespace {

using json = body_json;

/// The string member `name`; empty if it is none.
std::string text_member(const json& of, const char* name) {
  const auto i = of.is_object() ? of.find(name) : of.end();
  return of.is_object() && i != of.end() && i->is_string() ? i->get<std::string>() : std::string{};
}

/// Text, or parts of a text type, which are joined by line ends.
std::string content_of(body_reader& in, const json& item, const char* name, const std::string& where) {
  const auto at = where + "." + name;
  const auto content = item.find(name);
  if (content == item.end()) return in.complain(at, "is required"), std::string{};
  if (content->is_string()) return content->get<std::string>();
  std::string out;
  if (!content->is_array()) return in.complain(at, "must be a string or a list of text parts"), out;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const auto& part = (*content)[i];
    const auto type = text_member(part, "type");
    const bool fits = type == "input_text" || type == "output_text" || type == "text" ||
                      type == "reasoning_text" || type == "summary_text";
    if (!fits || !part.contains("text") || !part["text"].is_string())
      return in.complain(at + "[" + std::to_string(i) + "]", "must be of type input_text or output_text"),
             out;
    if (i > 0) out += '\n';
    out += part["text"].get_ref<const std::string&>();
  }
  return out;
}

/// Items become messages: the thoughts, words and calls of one turn of the assistant are one of them.
class item_reader {
 public:
  item_reader(body_reader& in, std::vector<chat_message>& out) : in_(in), out_(out) {}

  void read(const json& item, const std::string& where) {
    if (!item.is_object()) return in_.complain(where, "must be an object");
    const auto given = text_member(item, "type");
    const auto type = given.empty() && item.contains("role") ? std::string{"message"} : given;
    if (type == "message") return read_message(item, where);
    if (type == "function_call") {
      const auto name = text_member(item, "name"), id = text_member(item, "call_id");
      if (name.empty()) return in_.complain(where + ".name", "must be a string");
      assistant().bare = bare_content::unsaid;
      return assistant().tool_calls.push_back({id, name, text_member(item, "arguments")});
    }
    if (type == "function_call_output") {
      chat_message result;
      result.role = "tool";
      result.tool_call_id = text_member(item, "call_id");
      result.content = content_of(in_, item, "output", where);
      return out_.push_back(std::move(result));
    }
    if (type == "reasoning") {
      if (item.contains("content") && item["content"].is_array())
        assistant().reasoning_content += content_of(in_, item, "content", where);
      return;
    }
    in_.complain(where, "is not supported: type '" + shortened(type) + "'");
  }

 private:
  void read_message(const json& item, const std::string& where) {
    const auto role = text_member(item, "role");
    if (role.empty()) return in_.complain(where + ".role", "must be a string");
    auto text = content_of(in_, item, "content", where);
    if (role == "assistant" &&
        (out_.empty() || out_.back().role != "assistant" || out_.back().content.empty())) {
      assistant().content = std::move(text);
      return;
    }
    out_.push_back({});
    out_.back().role = role;
    out_.back().content = std::move(text);
  }

  chat_message& assistant() {
    if (out_.empty() || out_.back().role != "assistant") {
      out_.push_back({});
      out_.back().role = "assistant";
    }
    return out_.back();
  }

  body_reader& in_;
  std::vector<chat_message>& out_;
};

void read_input(body_reader& in, chat_request& out) {
  std::string instructions;
  in.string("instructions", instructions);
  if (!instructions.empty()) out.messages.push_back({"system", instructions, {}, {}, {}, {}});
  const auto* input = in.find("input");
  if (!input) return in.complain("input", "is required");
  if (input->is_string()) return out.messages.push_back({"user", input->get<std::string>(), {}, {}, {}, {}});
  if (!input->is_array() || input->empty())
    return in.complain("input", "must be a string or a list of at least one item");
  item_reader reader{in, out.messages};
  for (std::size_t i = 0; i < input->size() && !in.problem(); ++i)
    reader.read((*input)[i], "input[" + std::to_string(i) + "]");
}

/// Tools and their choice as chats have them: there a function is a member of its own.
void read_response_tools(body_reader& in, chat_request& out) {
  json chat = json::object();
  if (const auto* tools = in.find("tools")) {
    if (!tools->is_array()) return in.complain("tools", "must be a list");
    auto& list = chat["tools"] = json::array();
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const auto& t = (*tools)[i];
      const auto type = text_member(t, "type");
      if (type != "function")
        return in.complain("tools[" + std::to_string(i) + "]",
                           "is not supported: type '" + shortened(type) + "'; only functions are");
      json function = json::object();
      for (const auto* name : {"name", "description", "parameters", "strict"})
        if (const auto m = t.find(name); m != t.end() && !m->is_null()) function[name] = *m;
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (const auto* choice = in.find("tool_choice"))
    chat["tool_choice"] =
        text_member(*choice, "type") == "function"
            ? json{{"type", "function"}, {"function", {{"name", choice->value("name", json())}}}}
            : *choice;
  if (const auto* several = in.find("parallel_tool_calls")) chat["parallel_tool_calls"] = *several;
  body_reader inner{chat};
  read_tools(inner, out);
  in.complain(inner);
}

void read_text_form(body_reader& in, chat_request& out) {
  const auto* text = in.find("text");
  if (!text) return;
  if (!text->is_object()) return in.complain("text", "must be an object");
  const auto format = text->find("format");
  if (format == text->end() || format->is_null()) return;
  read_format(in, "text", *format, out);
}

/// Refuses an `include` of log-probabilities, which answers here do not tell.
void read_include(body_reader& in) {
  const auto* include = in.find("include");
  if (!include) return;
  if (!include->is_array()) return in.complain("include", "must be a list");
  constexpr std::string_view logprobs = "message.output_text.logprobs";
  if (std::ranges::find(*include, json(logprobs)) != include->end())
    in.complain("include",
                std::string{logprobs} + " is not supported: log-probabilities; use chat completions");
}

/// @param in  of the request, after its checks.
std::string echo_of(const body_reader& in, const chat_request& out) {
  const auto given = [&](const char* name, json otherwise) {
    const auto* v = in.find(name);
    return v ? *v : otherwise;
  };
  json echo;
  echo["instructions"] = given("instructions", nullptr);
  echo["max_output_tokens"] = given("max_output_tokens", nullptr);
  echo["metadata"] = given("metadata", json::object());
  echo["parallel_tool_calls"] = out.parallel_tool_calls;
  echo["temperature"] = out.sampling.temperature;
  echo["text"] = given("text", {{"format", {{"type", "text"}}}});
  echo["tool_choice"] = given("tool_choice", "auto");
  echo["tools"] = given("tools", json::array());
  echo["top_p"] = out.sampling.top_p;
  return text_of_json(echo);
}

}  // namespace

result<response_request> parse_responses(std::string_view body, const generation_defaults& defaults) {
  const auto parsed = parse_body(body, body_endpoint::responses);
  if (!parsed) return fail(parsed.error());
  body_reader in{*parsed};
  response_request out;
  begin_with(defaults, out.sampling);
  read_sampling(in, out);
  read_service(in, out);
  in.boolean("stream", out.stream);
  out.sampling.max_tokens = 0;
  in.number("max_output_tokens", out.sampling.max_tokens, 1, 1 << 30);
  out.max_tokens_given = in.find("max_output_tokens") != nullptr;
  read_input(in, out);
  read_response_tools(in, out);
  read_text_form(in, out);
  read_include(in);
  if (const auto problem = in.problem()) return fail(*problem);
  out.echo = echo_of(in, out);
  return out;
}

}  // namespace mooncaf
