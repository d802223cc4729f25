#pragma once
// The marks that models set around their thoughts before they answer.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/words.hpp"

namespace mooncaf {

enum class reasoning_form : std::uint8_t {
  think,    ///< <think>…</think> (DeepSeek R1, Qwen, and most others)
  mistral,  ///< [THINK]…[/THINK]
  harmony   ///< gpt-oss: messages of an answer, each in its channel: analysis, then final
};

constexpr auto words_of(reasoning_form) noexcept {
  using enum reasoning_form;
  return words<reasoning_form, 3>{{{think, "think"}, {mistral, "mistral"}, {harmony, "harmony"}}};
}

struct reasoning_marks {
  std::string_view open, close;
  std::string_view direct;  ///< opens an answer without reasoning; none: nothing does
  /// Also close the reasoning, but for the first `aside_closes` characters they are part of the answer.
  std::array<std::string_view, 2> aside{};
  std::size_t aside_closes = 0;
};
/// Of `think` and `mistral` the first character of either occurs in it once.
reasoning_marks marks_of(reasoning_form form) noexcept;
/// The marks that may be tokens of their own, which are not part of any text.
std::span<const std::string_view> mark_tokens(reasoning_form form) noexcept;

/// The form that a chat template teaches its model; nothing if it knows no marks.
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
