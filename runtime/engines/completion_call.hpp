#pragma once
// The question to an engine: the body of a `POST` to its `prompts_path`.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/engines/engine_make.hpp"
#include "runtime/request/messages.hpp"

namespace mooncaf {

/// The part that is the same in all questions to an engine.
struct completion_terms {
  std::string model;                 ///< the engine's name for it
  std::uint32_t context_tokens = 0;  ///< longest prompt and answer there; 0: not told
  block_key root;                    ///< of prompts without a salt
  engine_make make = engine_make::vllm;
};

/// Output tokens that the order still wants, as far as the engine's context has room for them.
std::uint32_t tokens_wanted(const work_order& order, const completion_terms& terms);

/// The question's body: the order's tokens as the prompt, answered as a stream of token ids.
/// @error `ec::unsupported` for a setting that an engine has no field for; `ec::invalid_argument` for a prompt that is longer than
/// its context.
result<std::string> completion_body(const work_order& order, const completion_terms& terms);

}  // namespace mooncaf
