#pragma once
// Whose server an engine is: what it is asked, and how it answers.

#include <cstdint>
#include <string_view>

namespace mooncaf {

enum class engine_make : std::uint8_t {
  vllm,  ///< `POST /v1/completions`, with vLLM's fields for token ids; what does not say otherwise is taken for one
  sglang  ///< `POST /generate` of SGLang's own API: its OpenAI API tells no token ids
};

/// Where prompts go.
constexpr std::string_view prompts_path(engine_make make) {
  return make == engine_make::sglang ? "/generate" : "/v1/completions";
}
/// Whether it lives: SGLang computes a token when it is asked for `/health`.
constexpr std::string_view life_path(engine_make make) {
  return make == engine_make::sglang ? "/v1/models" : "/health";
}

}  // namespace mooncaf
