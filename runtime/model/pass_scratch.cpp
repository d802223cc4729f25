#include "runtime/model/pass_scratch.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mooncaf {

// One allocation for all tensors: a device's allocator is slow, and one size is either there or not.
result<std::unique_ptr<pass_scratch>> pass_scratch::make(device& dev, const model_config& c,
                                                         const limits& most) {
  std::unique_ptr<pass_scratch> s(new pass_scratch);
  s->dim_ = c.dim;
  s->kv_dim_ = c.kv_dim();
  s->n_experts_ = c.n_experts;
  s->vocab_size_ = c.vocab_size;
  const std::size_t wide = std::max({c.dim, c.q_dim() * most.ranks, c.latent.query_rank});
  const std::size_t tile = std::min(most.tokens, ffn_tile_tokens);
  std::size_t total = 0;
  const auto take = [&total](std::size_t floats) {
    constexpr std::size_t line = 16;  // floats of a cache line
    return std::exchange(total, total + (floats + line - 1) / line * line);
  };
  s->x_ = take(most.tokens * c.dim);
  s->h_ = take(most.tokens * wide);
  s->q_ = take(most.tokens * wide);
  s->k_ = take(most.tokens * c.kv_dim());
  s->v_ = take(c.latent.rank == 0 ? most.tokens * c.kv_dim() : 0);
  std::size_t heads = 0;
  if (const auto& l = c.latent; l.rank != 0) {
    heads = most.tokens * c.n_heads * most.ranks * std::max(l.query_dim(), l.value_dim);
    s->heads_ = take(heads);
    s->every_head.resize(most.tokens * c.n_heads);
    std::iota(s->every_head.begin(), s->every_head.end(), 0u);
  }
  s->gate_ = take(tile * c.widest_ffn());
  s->up_ = take(tile * c.widest_ffn());
  if (c.n_experts != 0) {
    s->picked_ = take(tile * c.dim);
    s->mixed_ = take(most.whole_experts ? tile * c.experts_per_token * c.dim : 0);
    s->scores_ = take(tile * c.n_experts);
    s->seen_scores.resize(tile * c.n_experts);
    s->shares_ = take(c.shared_gated ? tile : 0);
    s->seen_shares.reserve(c.shared_gated ? tile : 0);
    s->tile_rows.resize(c.shared_gated ? tile : 0);
    std::iota(s->tile_rows.begin(), s->tile_rows.end(), 0u);
    s->experts.reserve(tile, c.n_experts, c.experts_per_token);
  }
  s->last_ = take(most.logit_rows * c.dim);
  const auto rows = std::max(most.logit_rows, std::min(most.tokens, rows_shown_at_once));
  s->logits_ = take(most.logits ? rows * c.vocab_size : 0);
  if (most.ranks > 1 && !dev.info().host_buffers) {
    s->swapped = std::make_shared<std::vector<float>>(std::max(
        {most.tokens * wide, heads, tile * c.widest_ffn(), s->scores_ - s->mixed_, rows * c.vocab_size}));
    (void)dev.pin(std::as_writable_bytes(std::span{*s->swapped}), s->swapped);
  }
  auto memory = dev.allocate(total * sizeof(float));
  if (!memory) return fail(std::move(memory.error()));
  s->memory_ = std::move(*memory);
  return s;
}

}  // namespace mooncaf
