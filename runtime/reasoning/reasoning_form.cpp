#include "runtime/reasoning/reasoning_form.hpp"

namespace mooncaf {

reasoning_marks marks_of(reasoning_form form) noexcept {
  switch (form) {
    case reasoning_form::think:
      return {"<think>", "</think>"};
    case reasoning_form::mistral:
      return {"[THINK]", "[/THINK]"};
    case reasoning_form::harmony:
      return {"<|channel|>analysis<|message|>",
              "<|end|><|start|>assistant<|channel|>final<|message|>",
              "<|channel|>final<|message|>",
              {"<|end|><|start|>assistant<|channel|>commentary", "<|end|><|start|>assistant to="},
              std::string_view{"<|end|>"}.size()};
  }
  return {};
}

std::span<const std::string_view> mark_tokens(reasoning_form form) noexcept {
  static constexpr std::string_view think[] = {"<think>", "</think>"}, mistral[] = {"[THINK]", "[/THINK]"},
                                    harmony[] = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"};
  switch (form) {
    case reasoning_form::think:
      return think;
    case reasoning_form::mistral:
      return mistral;
    case reasoning_form::harmony:
      return harmony;
  }
  return {};
}

std::optional<reasoning_form> reasoning_form_of(std::string_view source) noexcept {
  if (source.find(marks_of(reasoning_form::harmony).direct) != source.npos) return reasoning_form::harmony;
  // Some templates cut earlier reasoning off and name its end alone.
  for (const auto form : {reasoning_form::think, reasoning_form::mistral})
    if (source.find(marks_of(form).close) != source.npos || source.find(marks_of(form).open) != source.npos)
      return form;
  return std::nullopt;
}

thought_state thought_state_of(reasoning_form form, std::string_view prompt_end) noexcept {
  const auto last = prompt_end.find_last_not_of(" \n\r\t");
  if (last == prompt_end.npos) return thought_state::may_open;
  prompt_end = prompt_end.substr(0, last + 1);
  if (prompt_end.ends_with(marks_of(form).close)) return thought_state::over;
  return prompt_end.ends_with(marks_of(form).open) ? thought_state::open : thought_state::may_open;
}

}  // namespace mooncaf
