#pragma once
// How models mark what they think before they answer.

#include <cstdint>
#include <optional>
#include <string_view>

namespace mooncaf {

enum class reasoning_form : std::uint8_t {
  think,   ///< <think>…</think> (DeepSeek R1, Qwen, and most others)
  mistral  ///< [THINK]…[/THINK]
};

struct reasoning_marks {
  std::string_view open, close;
};
/// The first character of either occurs in it once.
reasoning_marks marks_of(reasoning_form form) noexcept;

/// What a chat template teaches its model; nothing if it knows no marks.
std::optional<reasoning_form> reasoning_form_of(std::string_view template_source) noexcept;

/// Where an answer begins.
enum class thought_state : std::uint8_t {
  may_open,  ///< the model decides whether it thinks
  open,      ///< within the reasoning: the prompt has opened it
  over       ///< behind it: the prompt has closed it
};
/// @param prompt_end  the last characters of the prompt, marks included.
thought_state thought_state_of(reasoning_form form, std::string_view prompt_end) noexcept;

}  // namespace mooncaf
