#include "runtime/tools/tool_format.hpp"

namespace mooncaf {

namespace {

constexpr std::string_view hermes_markers[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view llama3_markers[] = {"<|python_tag|>"};
constexpr std::string_view mistral_markers[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
constexpr std::string_view granite_markers[] = {"<|tool_call|>", "<tool_call>"};
constexpr std::string_view pythonic_markers[] = {"<|python_tag|>", "<|python_start|>"};
constexpr std::string_view deepseek_markers[] = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"};
constexpr std::string_view harmony_markers[] = {"<|start|>", "<|channel|>",   "<|message|>",
                                                "<|end|>",   "<|constrain|>", "<|call|>"};

}  // namespace

std::optional<tool_format> tool_format_of(std::string_view source) noexcept {
  const auto says = [&](std::string_view part) { return source.find(part) != std::string_view::npos; };
  if (says("<arg_key>")) return std::nullopt;  // GLM's tags in the same brackets
  if (says("<function=")) return tool_format::qwen3_coder;
  if (says("[func_name1(") || says("[func_name(")) return tool_format::pythonic;
  if (says("<｜tool▁call▁begin｜>")) return tool_format::deepseek;
  if (says("<|tool_call|>")) return tool_format::granite;
  if (says("functools[")) return tool_format::phi4;
  if (says("<|call|>") && says("functions.")) return tool_format::gpt_oss;
  if (says("<tool_call>")) return tool_format::hermes;
  if (says("[TOOL_CALLS]")) return tool_format::mistral;
  if (says("<|start_header_id|>") && says("tool_calls") && says("\"parameters\"")) return tool_format::llama3;
  return std::nullopt;
}

std::span<const std::string_view> tool_markers(tool_format format) noexcept {
  switch (format) {
    case tool_format::hermes:
    case tool_format::qwen3_coder:
      return hermes_markers;
    case tool_format::pythonic:
      return pythonic_markers;
    case tool_format::llama3:
      return llama3_markers;
    case tool_format::mistral:
      return mistral_markers;
    case tool_format::granite:
      return granite_markers;
    case tool_format::deepseek:
      return deepseek_markers;
    case tool_format::gpt_oss:
      return harmony_markers;
    case tool_format::phi4:
      break;
  }
  return {};
}

bool listed_when_forced(tool_format format) noexcept {
  switch (format) {
    case tool_format::hermes:
    case tool_format::llama3:
    case tool_format::phi4:
      return false;
    case tool_format::mistral:
    case tool_format::granite:
    case tool_format::deepseek:
    case tool_format::pythonic:
    case tool_format::qwen3_coder:
    case tool_format::gpt_oss:
      break;
  }
  return true;
}

}  // namespace mooncaf
