#pragma once
// Anthropic's /v1/messages as values: bodies in, the same requests as of a chat out; answers in its events.

#include <memory>
#include <string>
#include <string_view>

#include "runtime/api/openai.hpp"

namespace mooncaf {

/// A message of the assistant at the end is the beginning of the answer.
/// @param counts_only  for /v1/messages/count_tokens, which needs no max_tokens.
/// @error `ec::invalid_argument`: the name of the field, then its mistake.
result<chat_request> parse_messages(std::string_view body, bool counts_only = false,
                                    const generation_defaults& defaults = {});

/// @param prompt_tokens  which the first event of a stream tells.
std::unique_ptr<answer_writer> messages_writer(answer_head head, std::uint32_t prompt_tokens);
api_error messages_error(const error& cause, unsigned status);
std::string format_token_count(std::size_t tokens);

}  // namespace mooncaf
