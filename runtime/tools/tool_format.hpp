#pragma once
// How models write down that a function is to be called.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/words.hpp"

namespace mooncaf {

enum class tool_format : std::uint8_t {
  hermes,  ///< <tool_call>{"name": …, "arguments": {…}}</tool_call>, one after the other (Hermes, Qwen)
  llama3,  ///< the answer is {"name": …, "parameters": {…}}, "; " between several, <|python_tag|> may come
           ///< first
  mistral,  ///< [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}, one after the
            ///< other
  granite,   ///< <|tool_call|>[{"name": …, "arguments": {…}}, …]; <tool_call> does as well
  phi4,      ///< functools[{"name": …, "arguments": {…}}, …]
  deepseek,  ///< name<｜tool▁sep｜>{…} between <｜tool▁call▁begin｜> and <｜tool▁call▁end｜>, and all of them
             ///< between <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜> (V3.1)
  pythonic,  ///< the answer is [name(key=value, …), …], values as Python writes them (Llama 3.2 and 4)
  qwen3_coder,  ///< <tool_call><function=name><parameter=key>value</parameter>…</function></tool_call>,
                ///< values as text
  gpt_oss       ///< a message of the answer to functions.name, in the channel commentary:
                ///< <|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>
};

constexpr auto words_of(tool_format) noexcept {
  using enum tool_format;
  return words<tool_format, 9>{{{hermes, "hermes"},
                                {llama3, "llama3"},
                                {mistral, "mistral"},
                                {granite, "granite"},
                                {phi4, "phi4"},
                                {deepseek, "deepseek"},
                                {pythonic, "pythonic"},
                                {qwen3_coder, "qwen3_coder"},
                                {gpt_oss, "gpt_oss"}}};
}

/// The treatment of tools where the chat template has no place for them.
enum class tool_place : std::uint8_t {
  general,       ///< they are listed in a message, and calls are in `tool_format::hermes`
  template_only  ///< requests that offer them are refused
};

constexpr auto words_of(tool_place) noexcept {
  using enum tool_place;
  return words<tool_place, 2>{{{general, "general"}, {template_only, "template-only"}}};
}

/// The form that a chat template teaches its model; nothing if it names none that is known.
std::optional<tool_format> tool_format_of(std::string_view template_source) noexcept;
/// Special tokens that are part of a call: they are hidden from text, and `tool_call_reader` has to see them.
std::span<const std::string_view> tool_markers(tool_format format) noexcept;

/// Whether a forced answer is the list of calls alone: the marks around calls are tokens that no grammar can
/// ask for, or the text between them is no JSON.
bool listed_when_forced(tool_format format) noexcept;

}  // namespace mooncaf
