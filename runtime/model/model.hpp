#pragma once
// A loaded model: configuration plus weights on a device, shared by all workers of that device.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/model_source.hpp"

namespace mooncaf {

/// The feed-forward part of a layer, or one expert of it.
struct ffn_weights {
  std::unique_ptr<weight> gate, up;  ///< [width, dim]
  std::unique_ptr<weight> down;      ///< [dim, width]
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
};

/// Matrices of latent attention beside a layer's others: `layer_weights::k` makes rows of KV, [head_dim,
/// dim], `q` makes queries, [n_heads · query_dim, query_rank or dim], and there is no `v`.
struct latent_weights {
  std::unique_ptr<weight> query_a;     ///< [query_rank, dim]; null without a query_rank
  const float* query_gain = nullptr;   ///< [query_rank]
  const float* latent_gain = nullptr;  ///< [rank]
  /// For each head: [rank, plain_dim] turns the plain part of a query into a query of latents, and
  /// [value_dim, rank] turns attended latents into values.
  std::vector<std::unique_ptr<weight>> query_to_latent, latent_to_value;
};

/// Weights of one layer. Pointers to gains and biases are device addresses owned by the model; a null bias is
/// absent.
struct layer_weights {
  const float* attention_gain = nullptr;  ///< [dim]
  std::unique_ptr<weight> q, k, v;        ///< [q_dim | kv_dim, dim]
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const float* q_gain = nullptr;  ///< [head_dim], with `model_config::qk_norm`
  const float* k_gain = nullptr;
  latent_weights latent;                  ///< with `model_config::latent`
  const float* sinks = nullptr;           ///< [n_heads], with `model_config::sinks`
  std::unique_ptr<weight> attention_out;  ///< [dim, q_dim, or n_heads · value_dim with latent attention]
  const float* attention_out_bias = nullptr;
  const float* attention_post_gain = nullptr;  ///< [dim], with `model_config::post_norms`
  const float* ffn_gain = nullptr;             ///< [dim]
  const float* ffn_post_gain = nullptr;        ///< [dim], with `model_config::post_norms`
  std::unique_ptr<weight> router;              ///< [n_experts, dim] in f32, in a mixture
  const float* router_bias = nullptr;          ///< [n_experts], of its scores
  std::vector<float> choice_bias;              ///< [n_experts] or none: see `expert_choice`; on the host
  std::vector<ffn_weights> ffn;  ///< one, or [n_experts], without weights where another rank has them
  ffn_weights shared;            ///< beside the experts, with `model_config::shared_ffn_dim`
  std::unique_ptr<weight> shared_router;  ///< [1, dim] in f32, with `model_config::shared_gated`
};

/// The served model as every process of its cluster knows it, computing or not.
struct model_identity {
  model_config config;
  hash128 fingerprint;  ///< `model::fingerprint` wherever it is loaded
};

/// Bytes of a source that are read when a model is made of it.
struct model_reads {
  std::vector<std::span<const std::byte>> weights;  ///< of what is loaded
  std::vector<std::span<const std::byte>> samples;  ///< of all tensors, for the fingerprint
};

/// Immutable after loading, so any thread may read it. The device must outlive it.
class model {
 public:
  /// Hands every matrix of the source to the device, which may keep pointing into it.
  /// @param keep_alive  owner of the source's bytes (the mapping); held as long as the model. If empty, the
  /// caller
  ///                    keeps the bytes alive.
  /// @param part  the layers to load, and with the first one the embedding, with the last one the output matrix; nothing:
  /// all. The fingerprint is the whole model's all the same. @pre they are the source's.
  /// @param share  of a tensor group's rank: some rows of each matrix, see `tensor_part`. @pre `check_tensor`
  /// @error `ec::corrupt` naming the missing or misshapen tensor; `ec::unsupported` if the device does not
  /// take heads of this size; what `device::load_weight` reports.
  static result<std::shared_ptr<const model>> load(device& dev, const model_source& source,
                                                   std::shared_ptr<const void> keep_alive = {},
                                                   std::optional<layer_range> part = {},
                                                   tensor_part share = {});

  /// Random weights of `config.dummy_type`, scaled so that activations stay tame. Same seed, same weights,
  /// anywhere; all layers have the same ones. Made in their quantised form: no f32 copy ever exists.
  /// @error `ec::out_of_space` if the device says that it has less memory than the weights take.
  static result<std::shared_ptr<const model>> dummy(device& dev, const model_config& config,
                                                    std::uint64_t seed, std::optional<layer_range> part = {},
                                                    tensor_part share = {});

  /// The identity of the model that `load` or `dummy` would make, without a device and without reading or
  /// making the weights: of a file, samples of some KiB per tensor are read.
  /// @error `ec::corrupt` as `load` says it.
  static result<model_identity> identify(const model_source& source);
  /// What `load` would read, found without reading it. Nothing where the source makes tensors out of others: then that
  /// may be all.
  /// @pre as for `load`. @error `ec::corrupt` as `load` says it.
  static result<std::optional<model_reads>> reads(const model_source& source, std::optional<layer_range> part,
                                                  tensor_part share);
  static result<model_identity> identify_dummy(const model_config& config, std::uint64_t seed);

  model(const model&) = delete;
  model& operator=(const model&) = delete;
  ~model();

  /// Of what was loaded, see `config_of_layers` and `config_of_share`.
  const model_config& config() const noexcept { return config_; }
  /// The layers that were loaded, as the whole model counts them.
  layer_range part() const noexcept { return part_; }
  /// The share of each of them.
  tensor_part share() const noexcept { return share_; }
  bool embeds() const noexcept { return part_.first == 0; }     ///< has the embedding of tokens
  bool makes_logits() const noexcept { return makes_logits_; }  ///< has the last layer and the output matrix
  /// Identity of what decides KV contents: shape, tensor directory and samples of every tensor's bytes. Same
  /// on all hosts and from `identify`. Two models that differ only in unsampled bytes collide; a file
  /// checksum is the caller's choice.
  hash128 fingerprint() const noexcept { return fingerprint_; }
  kv_layout layout(std::uint32_t block_tokens, kv_dtype dtype) const noexcept {
    return layout_of(config_, block_tokens, dtype);
  }

  const weight& embedding() const noexcept { return *embedding_; }  ///< @pre embeds, or output is tied to it
  const weight& output() const noexcept { return output_ ? *output_ : *embedding_; }
  const float* output_gain() const noexcept { return output_gain_; }
  const layer_weights& layer(std::uint32_t i) const noexcept { return layers_[i]; }  ///< of `part`, from 0

 private:
  friend class model_builder;
  model();

  model_config config_;
  layer_range part_;
  tensor_part share_;
  bool makes_logits_ = true;
  hash128 fingerprint_;
  std::shared_ptr<const void> keep_alive_;
  std::vector<std::shared_ptr<const void>>
      owned_;                        ///< bytes that weights may point into: made up or rearranged
  std::unique_ptr<buffer> vectors_;  ///< all gains and biases
  std::unique_ptr<weight> embedding_;
  std::unique_ptr<weight> output_;  ///< null: tied to the embedding
  const float* output_gain_ = nullptr;
  std::vector<layer_weights> layers_;
};

}  // namespace mooncaf
