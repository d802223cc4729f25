#pragma once
// Latent attention (DeepSeek): the context is never expanded to keys and values per head. A head's query is
// brought to where the latents are, all heads attend over the same rows, and the sums of latents become
// values in the end.

#include "runtime/model/attention.hpp"

namespace mooncaf {

/// Rows of KV are a latent, normed, and a rotated part behind it.
class latent_attention final : public attention {
 public:
  latent_attention(const pass_tools& tools, const kv_layout& blocks, const pass_plan& plan)
      : attention(tools, blocks, plan) {}

  void enter(const layer_weights& w, tensor h, bool queries) override;
  void queries(const layer_weights& w, tensor h) override;
  void write(std::uint32_t layer, bool kept) override;
  void attend(std::uint32_t layer, std::span<const attention_seq> seqs,
              std::span<const std::int32_t> positions, tensor projected) override;
};

}  // namespace mooncaf
