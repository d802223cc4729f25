#include "runtime/api/tools_as_text.hpp"

#include <algorithm>
#include <utility>

#include "runtime/api/chat_messages.hpp"

namespace mooncaf {

namespace {

using json = body_json;

/// The functions, one a line, and how to call them.
std::string listed(const std::string& tools) {
  std::string out =
      "You can call functions. Each line between <tools> and </tools> is one of them, as JSON:\n<tools>\n";
  for (const auto& tool : json::parse(tools, nullptr, false)) out += text_of_json(tool) + "\n";
  return out +
         "</tools>\nA call is a JSON object with the function's name and its arguments, between tags of its "
         "own:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"KEY\": VALUE}}\n</tool_call>\nThe result "
         "then comes between <tool_response> and </tool_response>. Where no function helps, answer without a "
         "call.";
}

std::string call_as_text(const tool_call& call) {
  const auto given = json::parse(call.arguments, nullptr, false);
  const json said = {{"name", call.name}, {"arguments", given.is_discarded() ? json(call.arguments) : given}};
  return "<tool_call>\n" + text_of_json(said) + "\n</tool_call>";
}

void add_paragraph(std::string& to, const std::string& more, std::string_view between) {
  if (!to.empty() && !more.empty()) to += between;
  to += more;
}

/// Puts the list where the model looks for its orders.
void put_in_front(std::vector<chat_message>& messages, const std::string& list, bool with_system) {
  const auto is_system = [](const chat_message& m) { return m.role == "system" || m.role == "developer"; };
  if (with_system) {
    if (messages.empty() || !is_system(messages.front())) {
      messages.insert(messages.begin(), chat_message{});
      messages.front().role = "system";
    }
    return add_paragraph(messages.front().content, list, "\n\n");
  }
  auto first = std::ranges::find(messages, "user", &chat_message::role);
  if (first == messages.end()) {
    first = messages.insert(messages.begin(), chat_message{});
    first->role = "user";
  }
  first->content = list + (first->content.empty() ? "" : "\n\n") + first->content;
}

}  // namespace

bool speaks_of_tools(const chat_prompt& conversation) {
  return !conversation.tools.empty() || std::ranges::any_of(conversation.messages, [](const auto& m) {
    return !m.tool_calls.empty() || m.role == "tool";
  });
}

chat_prompt tools_as_text(chat_prompt conversation, bool with_system) {
  std::vector<chat_message> out;
  bool after_result = false;
  for (auto& m : conversation.messages) {
    const bool result = m.role == "tool";
    if (result) {
      m.content = "<tool_response>\n" + m.content + "\n</tool_response>";
      m.role = "user";
      m.name.clear();
      m.tool_call_id.clear();
    }
    for (const auto& call : std::exchange(m.tool_calls, {}))
      add_paragraph(m.content, call_as_text(call), "\n");
    m.bare = bare_content::empty;
    // Templates that know no tools want turns of the user and the assistant in turn.
    const bool same_turn = after_result && m.role == "user";
    if (same_turn) add_paragraph(out.back().content, m.content, "\n");
    else out.push_back(std::move(m));
    after_result = result || (after_result && same_turn);
  }
  conversation.messages = std::move(out);
  if (const auto tools = std::exchange(conversation.tools, {}); !tools.empty())
    put_in_front(conversation.messages, listed(tools), with_system);
  return conversation;
}

}  // namespace mooncaf
