#pragma once
// Rotary frequencies of a model, with the stretching of its context folded in.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/model/gguf.hpp"

namespace mooncaf {

/// Frequencies of the rotary embedding and the factor on sin and cos.
struct rope_table {
  std::vector<float> inv_freq;  ///< [head_dim / 2], radians per position
  float attention_scale = 1;
  std::uint32_t context_length = 0;  ///< up to where these frequencies hold; 0: the model's
};

/// base^(-2i / head_dim) for each pair i.
std::vector<float> plain_inv_freq(std::uint32_t head_dim, double base);

/// YaRN: pairs that turn often keep their frequency, pairs that turn rarely are slowed by `factor`, with a
/// linear ramp between; sin and cos grow by 0.1·ln(factor) + 1.
/// @param original_context  tokens that the model was trained on before stretching.
/// @source Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023,
/// sections 3.2-3.4.
struct yarn_params {
  double factor = 1;
  double original_context = 0;
  double beta_fast = 32;  ///< turns over the original context above which a pair is kept
  double beta_slow = 1;   ///< and below which it is slowed in full
  double attention_factor = 1;
  bool truncate = true;  ///< the ramp begins and ends at whole pairs
};
rope_table yarn_table(std::uint32_t head_dim, double base, const yarn_params& params);

/// Llama 3: pairs that turn often over the original context keep their frequency, pairs that turn rarely are
/// slowed by `factor`, with a smooth passage between.
struct llama3_params {
  double factor = 1;
  double low_turns = 1;   ///< turns over the original context below which a pair is slowed in full
  double high_turns = 4;  ///< and above which it is kept
  double original_context = 0;
};
void slow_as_llama3(std::span<float> inv_freq, const llama3_params& params);

/// Reads `ARCH.rope.*` and `rope_freqs.weight` (Llama 3's per-pair divisors) or `rope_factors_short.weight`
/// (LongRoPE's within the original context).
/// @error `ec::unsupported` for other kinds of scaling; `ec::corrupt` for bad values.
result<rope_table> rope_from_gguf(const gguf_file& file, std::string_view arch, std::uint32_t head_dim,
                                  std::uint32_t context_length);

}  // namespace mooncaf
