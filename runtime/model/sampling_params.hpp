#pragma once
// How the next token of a request is chosen, and when the request ends.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mooncaf {

/// Which of the last hidden states, behind the final norm, a request asks for beside the first token.
enum class pooling_kind : std::uint8_t { none, mean, last };

/// One request's sampling settings; names and ranges follow the OpenAI and vLLM APIs.
struct sampling_params {
  float temperature = 1.0f;         ///< [0, 2]; 0 is greedy
  std::int32_t top_k = 0;           ///< 0 or -1: off
  float top_p = 1.0f;               ///< (0, 1]
  float min_p = 0.0f;               ///< [0, 1]
  float repetition_penalty = 1.0f;  ///< (0, 2]; counts prompt and output tokens
  float presence_penalty = 0.0f;    ///< [-2, 2]; counts output tokens
  float frequency_penalty = 0.0f;   ///< [-2, 2]; counts output tokens
  /// The draw for output position i depends on (seed, i) alone, so a request that moves to another worker in
  /// mid-stream goes on with the very tokens it would have had.
  std::uint64_t seed = 0;
  std::int32_t logprobs = -1;  ///< -1: none; n >= 0: log-probability of the token and of the n likeliest
  /// The same for every token of the prompt but the first, which follows nothing.
  std::int32_t prompt_logprobs = -1;
  pooling_kind pooling = pooling_kind::none;               ///< of the prompt
  std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< token id, [-100, 100]

  std::uint32_t max_tokens = 16;  ///< output tokens at most
  std::uint32_t min_tokens = 0;   ///< before this many, end-of-text and stop are not taken
  bool ignore_eos = false;
  std::vector<std::string> stop;  ///< stop strings; matched over token borders, not part of the output
  std::vector<std::int32_t> stop_token_ids;

  std::string adapter;  ///< that the model's weights are changed by, by its name; empty: none
  std::string grammar;  ///< GBNF that the answer is held to (runtime/grammar); empty: none
  std::vector<std::int32_t> allowed_token_ids;  ///< these alone may come, and the end; empty: all
  std::vector<std::vector<std::int32_t>>
      bad_words;  ///< the last token of one does not come behind the others
};

/// A token with its log-probability, and the likeliest alternatives when asked for.
struct sampled_token {
  std::int32_t id = -1;
  float logprob = 0;
  std::vector<std::pair<std::int32_t, float>> top;  ///< (id, log-probability), likeliest first
};

}  // namespace mooncaf
