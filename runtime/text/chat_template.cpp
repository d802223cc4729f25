#include "runtime/text/chat_template.hpp"

#include <optional>

#include "runtime/text/prompt_builder.hpp"

namespace mooncaf {

namespace {

/// What Llama 3.1's template says when nobody tells it the day.
constexpr std::string_view llama_default_date = "26 Jul 2024";
constexpr std::string_view llama_knowledge_date = "December 2023";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The literal system turn that a ChatML template puts first when the conversation brings none. Templates
/// build other turns from expressions, so the one without a quote or a brace between its markers is the
/// default.
std::string default_system_of(std::string_view text) {
  constexpr std::string_view open = "<|im_start|>system", close = "<|im_end|>";
  for (std::size_t at = text.find(open); at != std::string_view::npos; at = text.find(open, at + 1)) {
    std::string_view rest = text.substr(at + open.size());
    if (rest.starts_with("\n")) rest.remove_prefix(1);
    else if (rest.starts_with("\\n")) rest.remove_prefix(2);
    else continue;
    const std::string_view body = rest.substr(0, rest.find(close));
    if (body.size() < rest.size() && body.find_first_of("'\"{}") == std::string_view::npos) {
      std::string said;
      for (std::size_t i = 0; i < body.size(); ++i) {
        const bool newline = body.substr(i, 2) == "\\n";
        said += newline ? '\n' : body[i];
        i += newline;
      }
      return said;
    }
  }
  return {};
}

/// `text` from behind the last `mark` on, or all of it.
std::string_view after_last(std::string_view text, std::string_view mark) {
  const std::size_t at = text.rfind(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

std::string_view strip_newlines(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

bool is_role(std::string_view role) {
  return role == "system" || role == "developer" || role == "user" || role == "assistant" || role == "tool";
}

std::string_view spoken_role(std::string_view role) { return role == "developer" ? "system" : role; }

/// Qwen3: the last message in which a person asks; answers after it keep their thinking.
std::size_t last_query(std::span<const chat_message> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string_view content = messages[i].content;
    const bool tool_result = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool_result) return i;
  }
  return messages.size() - 1;
}

/// Qwen3: an earlier answer without its thinking; the one after the last question with it, in the form it was
/// learnt.
std::string thinking_answer(std::string_view content, bool after_query, bool last) {
  std::string_view answer = content, thinking;
  if (const std::size_t end = content.find("</think>"); end != std::string_view::npos) {
    thinking = strip_newlines(after_last(content.substr(0, end), "<think>"));
    answer = after_last(content, "</think>");
    while (answer.starts_with('\n')) answer.remove_prefix(1);
  }
  if (!after_query || (!last && thinking.empty())) return std::string{answer};
  while (answer.starts_with('\n')) answer.remove_prefix(1);
  return "<think>\n" + std::string{thinking} + "\n</think>\n\n" + std::string{answer};
}

}  // namespace

result<chat_template> chat_template::recognise(std::shared_ptr<const tokenizer> tok,
                                               std::string_view wanted) {
  const std::string_view text = tok->chat_template_text();
  if (wanted == "auto") {
    if (contains(text, "<|im_start|>")) wanted = "chatml";
    else if (contains(text, "<|start_header_id|>")) wanted = "llama3";
    else
      return fail(ec::unsupported,
                  std::string{text.empty() ? "the model file has no chat template"
                                           : "the model file's chat template is of no known family"} +
                      "; choose one with --chat-template chatml, llama3 or none");
  }
  chat_template made;
  if (wanted == "chatml") made.family_ = chat_family::chatml;
  else if (wanted == "llama3") made.family_ = chat_family::llama3;
  else if (wanted != "none")
    return fail(ec::invalid_argument,
                "chat template \"" + std::string{wanted} + "\" is not one of auto, chatml, llama3, none");
  const auto marker = [&](std::string_view name, std::int32_t& id) -> result<void> {
    const auto found = tok->find(name);
    if (!found)
      return fail(ec::unsupported, "the vocabulary has no " + std::string{name} + ", which chat template " +
                                       std::string{wanted} + " needs; choose another with --chat-template");
    id = *found;
    return {};
  };
  result<void> ok;
  if (made.family_ == chat_family::chatml) {
    ok = marker("<|im_start|>", made.open_).and_then([&] { return marker("<|im_end|>", made.close_); });
    made.default_system_ = default_system_of(text);
    made.tool_response_ = contains(text, "<tool_response>");
    made.strip_thinking_ = contains(text, "</think>");
  } else if (made.family_ == chat_family::llama3) {
    ok = marker("<|start_header_id|>", made.open_)
             .and_then([&] { return marker("<|end_header_id|>", made.header_end_); })
             .and_then([&] { return marker("<|eot_id|>", made.close_); });
    made.states_date_ = contains(text, "Cutting Knowledge Date");
  }
  if (!ok) return fail(ok.error());
  made.tokenizer_ = std::move(tok);
  return made;
}

result<std::vector<std::int32_t>> chat_template::render(std::span<const chat_message> messages,
                                                        const chat_render_options& options) const {
  if (messages.empty()) return fail(ec::invalid_argument, "messages is empty; a chat needs at least one");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_role(messages[i].role))
      return fail(ec::invalid_argument, "messages[" + std::to_string(i) + "].role is \"" + messages[i].role +
                                            "\"; it must be system, developer, user, assistant or tool");
  }
  switch (family_) {
    case chat_family::chatml:
      return render_chatml(messages, options);
    case chat_family::llama3:
      return render_llama3(messages, options);
    case chat_family::none:
      break;
  }
  std::string text;
  for (const auto& m : messages) text += (text.empty() ? "" : "\n") + m.content;
  return tokenizer_->encode_prompt(text);
}

std::vector<std::int32_t> chat_template::render_chatml(std::span<const chat_message> messages,
                                                       const chat_render_options& options) const {
  prompt_builder prompt(*tokenizer_);
  const auto turn = [&](std::string_view role, std::string_view content) {
    prompt.marker(open_).text(role).text("\n").text(content).marker(close_).text("\n");
  };
  if (spoken_role(messages[0].role) != "system" && !default_system_.empty()) turn("system", default_system_);
  const std::size_t query = strip_thinking_ ? last_query(messages) : 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const chat_message& m = messages[i];
    if (m.role == "tool" && tool_response_) {
      if (i == 0 || messages[i - 1].role != "tool") prompt.marker(open_).text("user");
      prompt.text("\n<tool_response>\n").text(m.content).text("\n</tool_response>");
      if (i + 1 == messages.size() || messages[i + 1].role != "tool") prompt.marker(close_).text("\n");
    } else if (m.role == "assistant" && strip_thinking_) {
      turn(m.role, thinking_answer(m.content, i > query, i + 1 == messages.size()));
    } else {
      turn(spoken_role(m.role), m.content);
    }
  }
  if (options.add_generation_prompt) prompt.marker(open_).text("assistant\n");
  return prompt.take();
}

std::vector<std::int32_t> chat_template::render_llama3(std::span<const chat_message> messages,
                                                       const chat_render_options& options) const {
  prompt_builder prompt(*tokenizer_);
  const auto header = [&](std::string_view role) -> prompt_builder& {
    return prompt.marker(open_).text(role).marker(header_end_).text("\n\n");
  };
  if (tokenizer_->bos() >= 0) prompt.marker(tokenizer_->bos());
  if (states_date_) {
    const bool has_system = spoken_role(messages[0].role) == "system";
    header("system").text("Cutting Knowledge Date: ").text(llama_knowledge_date).text("\nToday Date: ");
    prompt.text(options.date.empty() ? llama_default_date : std::string_view{options.date}).text("\n\n");
    if (has_system) prompt.text(trim(messages[0].content));
    prompt.marker(close_);
    if (has_system) messages = messages.subspan(1);
  }
  for (const auto& m : messages) {
    // Llama calls a tool's result "ipython" and, from 3.1 on, quotes it as JSON.
    if (m.role == "tool" && states_date_) header("ipython").text(json_quoted(m.content)).marker(close_);
    else header(spoken_role(m.role)).text(trim(m.content)).marker(close_);
  }
  if (options.add_generation_prompt) header("assistant");
  return prompt.take();
}

}  // namespace mooncaf
