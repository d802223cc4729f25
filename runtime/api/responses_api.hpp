#pragma once
// OpenAI's /v1/responses as values, without anything that is kept: bodies in, the same requests as of a chat
// out; answers in its events.

#include <memory>
#include <string>
#include <string_view>

#include "runtime/api/openai.hpp"

namespace mooncaf {

struct response_request : chat_request {
  std::string echo;  ///< JSON text of an object: the fields that answers repeat of their request
};

/// @error `ec::invalid_argument`: the name of the field, then its mistake.
result<response_request> parse_responses(std::string_view body, const generation_defaults& defaults = {});

/// @param echo  of the request.
std::unique_ptr<answer_writer> responses_writer(answer_head head, std::string echo);

}  // namespace mooncaf
