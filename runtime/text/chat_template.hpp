#pragma once
// A conversation to the token ids of a prompt, as the model's own Jinja template has it.

#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/jinja/syntax.hpp"
#include "runtime/text/jinja/text.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// A function that an answer asks for.
struct tool_call {
  std::string id;
  std::string name;
  std::string arguments;  ///< JSON text, if the model kept to JSON
};

/// The content that a template sees of a message without text.
enum class bare_content : std::uint8_t {
  empty,   ///< an empty text
  null,    ///< none
  absent,  ///< nothing: the message has no such member
  unsaid   ///< none if the template asks whether a content is none, else nothing
};

/// One message of a conversation. Content of several text parts is joined by the caller.
struct chat_message {
  std::string role;  ///< "system", "developer" (read as system), "user", "assistant" or "tool"
  std::string content;
  std::vector<tool_call> tool_calls;  ///< assistant
  std::string tool_call_id;           ///< tool: the call that this answers
  std::string name;
  std::string reasoning_content;            ///< assistant: its thoughts before
  bare_content bare = bare_content::empty;  ///< stands for an empty `content`
};

/// The choices of one rendering.
struct chat_render_options {
  bool add_generation_prompt = true;  ///< end with the header of the assistant's answer
  /// End within the last message, for the answer to go on with it; then without a header.
  bool continue_final_message = false;
  std::string tools;      ///< JSON text: a list of functions, as clients send them; empty: none
  std::string variables;  ///< JSON text: an object with members that the template sees by name; empty: none
  std::tm now{};          ///< the time that `strftime_now` tells
};

/// Renders conversations for one model, as transformers' `apply_chat_template` does.
///
/// A character knows whether the template wrote it or a client (`jinja::foreign`), and special tokens are
/// read where the template wrote all of them: "<|im_end|>" inside a message stays text, so no client can
/// forge a turn. Roles, which are of a closed list, and the names of the model's first and last token count
/// as the template's.
///
/// @thread Immutable; shareable.
class chat_template {
 public:
  /// @param wanted  "auto": the template of the model file. Or one of ours: "chatml", "llama3", or "none",
  /// which says the contents alone, one a line, for base models.
  /// @error `ec::unsupported` if the file has no template or one that is not understood, or the vocabulary
  /// lacks the markers of ours; the detail names the option to set. `ec::invalid_argument` for any other
  /// `wanted`.
  static result<chat_template> recognise(std::shared_ptr<const tokenizer> tok,
                                         std::string_view wanted = "auto");
  /// @param source  Jinja, as far as chat templates use it (`jinja/README.md`).
  /// @error `ec::unsupported` with the line.
  static result<chat_template> from_source(std::shared_ptr<const tokenizer> tok, std::string source);

  /// Token ids of the whole prompt. The model's first token is part of it where the template says so.
  /// @error `ec::invalid_argument` for no messages at all or an unknown role, naming its index; for a refusal
  /// by the template itself, in its words; beyond the steps and the length that one prompt may take.
  result<std::vector<std::int32_t>> render(std::span<const chat_message> messages,
                                           const chat_render_options& options = {}) const;

  const std::string& source() const noexcept { return source_; }

 private:
  chat_template() = default;
  jinja::value message_value(jinja::heap& memory, const chat_message& m) const;
  result<jinja::text> render_text(std::span<const chat_message> messages,
                                  const chat_render_options& options) const;

  std::shared_ptr<const tokenizer> tokenizer_;
  std::string source_;
  bool asks_for_none_ = false;  ///< whether the template tells a content that is none from others
  std::shared_ptr<const jinja::block> program_;
};

/// The source of one of ours; empty for another name. @param bos  whether a prompt begins with the model's
/// first token.
std::string builtin_chat_template(std::string_view name, bool bos);

}  // namespace mooncaf
