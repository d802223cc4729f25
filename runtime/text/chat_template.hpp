#pragma once
// A conversation to the token ids of a prompt.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// One message of a conversation. Content of several text parts is joined by the caller.
struct chat_message {
  std::string role;  ///< "system", "developer" (read as system), "user", "assistant" or "tool"
  std::string content;
};

/// The prompt formats that we speak.
enum class chat_family : std::uint8_t {
  chatml,  ///< <|im_start|>role … <|im_end|> (SmolLM2, Qwen2, Qwen2.5, Qwen3)
  llama3,  ///< <|start_header_id|>role<|end_header_id|> … <|eot_id|> (Llama 3, 3.1, 3.2, 3.3)
  none,    ///< No markers: the contents, one a line. For base models.
};

/// What a caller may ask of one rendering.
struct chat_render_options {
  bool add_generation_prompt = true;  ///< end with the header of the assistant's answer
  /// The day for templates that state it (Llama 3.1 and later), e.g. "21 Nov 2026". Empty: the day which
  /// those templates fall back to, so that prompts, and with them cached prefixes, stay the same from day to
  /// day.
  std::string date;
};

/// Renders conversations for one model.
///
/// Markers are put in by id, and what a client wrote is encoded with special tokens off, so "<|im_end|>"
/// inside a message stays text and nobody can forge a turn. For content without such text the ids equal those
/// of Hugging Face's `apply_chat_template`.
///
/// @thread Immutable; shareable.
class chat_template {
 public:
  /// Recognises the family from the tokenizer's template text and vocabulary, with the model's own default
  /// system prompt and tool format.
  /// @param wanted  "auto", or "chatml", "llama3", "none" to overrule the file.
  /// @error `ec::unsupported` if the file has no template or an unknown one, or the vocabulary lacks the
  /// markers; the detail names the option to set. `ec::invalid_argument` for any other `wanted`.
  static result<chat_template> recognise(std::shared_ptr<const tokenizer> tok,
                                         std::string_view wanted = "auto");

  /// Token ids of the whole prompt, `bos` included where the family has one.
  /// @error `ec::invalid_argument` for no messages at all or an unknown role, naming its index.
  result<std::vector<std::int32_t>> render(std::span<const chat_message> messages,
                                           const chat_render_options& options = {}) const;

  chat_family family() const noexcept { return family_; }
  /// What is put first when a conversation has no system message; empty: nothing.
  const std::string& default_system() const noexcept { return default_system_; }

 private:
  chat_template() = default;
  std::vector<std::int32_t> render_chatml(std::span<const chat_message> messages,
                                          const chat_render_options& options) const;
  std::vector<std::int32_t> render_llama3(std::span<const chat_message> messages,
                                          const chat_render_options& options) const;

  std::shared_ptr<const tokenizer> tokenizer_;
  chat_family family_ = chat_family::none;
  std::string default_system_;
  bool tool_response_ = false;    ///< chatml: tool results go into a user turn, inside <tool_response>
  bool strip_thinking_ = false;   ///< chatml: earlier answers lose what stands before </think> (Qwen3)
  bool states_date_ = false;      ///< llama3: the system turn opens with knowledge date and today's date
  std::int32_t open_ = -1;        ///< <|im_start|> or <|start_header_id|>
  std::int32_t close_ = -1;       ///< <|im_end|> or <|eot_id|>
  std::int32_t header_end_ = -1;  ///< <|end_header_id|>
};

}  // namespace mooncaf
