#pragma once
// The shape of a model: all that the forward pass needs to know besides the weights.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/ggml_type.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/model/layer_range.hpp"
#include "runtime/model/tensor_part.hpp"

namespace mooncaf {

/// Families by the names that GGUF has for them. `llama`: Llama 2/3, SmolLM2, Mistral, Ministral, Mixtral.
/// `qwen2`: Qwen2/2.5. `qwen3`: dense Qwen3. `phi3`: Phi 3 and 4. `deepseek2`: DeepSeek V2 and V3.
enum class model_arch : std::uint8_t {
  llama = 1,
  qwen2 = 2,
  qwen3 = 3,
  qwen3moe = 4,
  gemma2 = 5,
  gemma3 = 6,
  phi3 = 7,
  deepseek2 = 8,
  gpt_oss = 9,
  qwen2moe = 10,
};

std::string_view to_string(model_arch arch) noexcept;

/// Latent attention (DeepSeek): KV holds one latent for all heads, from which each head's keys and values
/// would be made. A row of KV is the latent, then the rotated part of the keys.
struct latent_shape {
  std::uint32_t rank = 0;        ///< of the latent; 0: the model has none
  std::uint32_t query_rank = 0;  ///< of the row that queries are made of; 0: of the residual stream itself
  std::uint32_t plain_dim = 0;   ///< of the part of a head's query and key that is not rotated
  std::uint32_t rope_dim = 0;    ///< of the part that is rotated
  std::uint32_t value_dim = 0;   ///< of a head's value

  std::uint32_t query_dim() const noexcept { return plain_dim + rope_dim; }
  friend bool operator==(const latent_shape&, const latent_shape&) = default;
};

/// How experts are chosen, beyond their number.
struct expert_routing {
  bool sigmoid = false;      ///< each score becomes its sigmoid; else softmax over all scores
  float scale = 1;           ///< factor on the weights of the chosen experts
  std::uint32_t groups = 1;  ///< of neighbouring experts; only experts of the best groups are chosen
  std::uint32_t best_groups = 1;
  bool group_of_two = false;  ///< a group is worth the sum of its best two experts; else its best one

  friend bool operator==(const expert_routing&, const expert_routing&) = default;
};

struct model_config {
  std::string name;  ///< `general.name` or the dummy's spec; for people
  model_arch arch = model_arch::llama;

  std::uint32_t n_layers = 0;
  std::uint32_t dim = 0;         ///< width of the residual stream
  std::uint32_t n_heads = 0;     ///< query heads
  std::uint32_t n_kv_heads = 0;  ///< divides n_heads; 1 with latent attention
  std::uint32_t head_dim = 0;    ///< of a row of KV; dim / n_heads unless the file says otherwise
  std::uint32_t ffn_dim = 0;     ///< of one expert, in a mixture
  std::uint32_t vocab_size = 0;  ///< rows of the embedding, padding included
  std::uint32_t context_length = 0;
  float rms_eps = 1e-5f;

  bool rope_neox = false;  ///< pairs (i, i + d/2) of the d rotated dimensions; else (2i, 2i + 1)
  /// [d / 2], scaling folded in; d is head_dim, or less where only the beginning of a head is rotated.
  std::vector<float> rope_inv_freq;
  std::vector<float> local_inv_freq;  ///< of layers with a window, where theirs differ (Gemma 3); else empty
  float rope_attention_scale = 1;     ///< YaRN's factor on sin and cos

  /// Positions that a token sees in each layer, its own included; 0: all of them. Empty: all in every layer.
  std::vector<std::uint32_t> windows;
  float attention_scale = 0;    ///< of scores before the softmax; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0;  ///< scores s become cap·tanh(s / cap); 0: they do not
  float logit_softcap = 0;      ///< the same of logits
  float embedding_scale = 1;    ///< of the embedding's rows, where they enter the first layer
  bool gelu = false;            ///< the feed-forward part gates by GELU (tanh form); else by SiLU
  bool post_norms = false;  ///< attention and feed-forward are normed before they join the residual stream

  latent_shape latent;
  bool sinks = false;  ///< each head has a score that joins its softmax and has no value (gpt-oss)

  std::uint32_t n_experts = 0;          ///< of a feed-forward part; 0: it is dense
  std::uint32_t experts_per_token = 0;  ///< the experts with the best scores
  bool normalise_experts = true;        ///< the weights of a token's experts sum to 1
  expert_routing routing;
  std::uint32_t dense_layers = 0;    ///< so many layers, the first ones, have no experts
  std::uint32_t dense_ffn_dim = 0;   ///< width of the feed-forward part of dense layers
  std::uint32_t shared_ffn_dim = 0;  ///< width of a part beside the experts, for every token; 0: none
  bool shared_gated = false;         ///< the shared part is weighted by the sigmoid of a score (Qwen2)
  bool ffn_biases = false;           ///< of feed-forward parts and routers (gpt-oss, some Llamas)
  float glu_limit = 0;               ///< limit of `clamped_swiglu`, by which experts gate; 0: they do not

  bool qk_norm = false;          ///< RMS norm over each head of q and k before rope
  bool tied_embeddings = false;  ///< the output matrix is the embedding

  ggml_type dummy_type = ggml_type::q4_0;  ///< of the matrices of a dummy model; unused for files

  std::uint32_t q_dim() const noexcept { return n_heads * head_dim; }
  std::uint32_t kv_dim() const noexcept { return n_kv_heads * head_dim; }
  bool has_experts(std::uint32_t layer) const noexcept { return n_experts != 0 && layer >= dense_layers; }
  /// Width of the widest feed-forward part.
  std::uint32_t widest_ffn() const noexcept { return std::max({ffn_dim, dense_ffn_dim, shared_ffn_dim}); }
  /// Factor on scores before the softmax.
  float score_scale() const noexcept;
  std::uint32_t window(std::uint32_t layer) const noexcept { return windows.empty() ? 0 : windows[layer]; }
  /// Rotary frequencies of a layer.
  const std::vector<float>& inv_freq(std::uint32_t layer) const noexcept {
    return window(layer) != 0 && !local_inv_freq.empty() ? local_inv_freq : rope_inv_freq;
  }
  /// Parameters of all matrices.
  std::uint64_t parameter_count() const noexcept;
  /// Bytes of all matrices of a dummy model.
  std::uint64_t dummy_bytes() const noexcept;

  friend bool operator==(const model_config&, const model_config&) = default;
};

/// The shape of a model that has some of its layers alone, numbered from 0. @pre the layers are the model's.
model_config config_of_layers(const model_config& whole, layer_range layers);

/// The shape as a rank of a tensor group has it: with its own heads alone. Widths of other parts stay the whole's.
model_config config_of_share(const model_config& whole, tensor_part part);

/// Layout of a rank's KV heads where they lie in blocks of the whole's layout. Offsets count from the rank's first head.
kv_layout layout_of_share(const kv_layout& whole, tensor_part part) noexcept;

/// Whether a model can be divided among so many ranks. @error `ec::invalid_argument` says what is not divisible.
result<void> check_tensor(const model_config& whole, std::uint32_t ranks, bool whole_experts = false);

/// Layout of the KV blocks of this model.
kv_layout layout_of(const model_config& config, std::uint32_t block_tokens, kv_dtype dtype) noexcept;

/// Reads and cross-checks the shape.
/// @error `ec::unsupported` for other architectures, experts in a family that has none, and split
/// files;
///        `ec::corrupt` for missing or contradictory keys, naming file, key and value.
result<model_config> config_from_gguf(const gguf_file& file);

/// True if `spec` names a dummy model ("dummy:…").
bool is_dummy_spec(std::string_view spec) noexcept;

/// Shape of a model with random weights, the paper's own way to measure without the weights.
/// @param spec  `dummy:NAME` with NAME one of llama3-8b, llama3-70b, smollm2-135m, qwen2.5-0.5b,
///              deepseek-v2-lite, gpt-oss-20b; or
///              `dummy:layers=4,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1000` with optional `head_dim=`,
///              `type=q4_0` (any type of ggml_type.hpp), `ctx=`, `tied=0|1`. A NAME may be followed by
///              overrides: `dummy:llama3-8b,layers=4,type=q8_0`.
/// @error `ec::invalid_argument` naming the part and the allowed range.
result<model_config> dummy_shape(std::string_view spec);

}  // namespace mooncaf
