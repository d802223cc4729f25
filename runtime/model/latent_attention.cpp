// Latent attention (DeepSeek): the context is never expanded to keys and values per head. A head's query is
// brought to where the latents are, all heads attend over the same rows, and the sums of latents become
// values in the end.

#include <array>

#include "runtime/model/model_runner.hpp"

namespace mooncaf {

namespace {

/// Of the norms of latents and of the rows that queries are made of; the file's number is for other norms.
constexpr float latent_eps = 1e-6f;

/// The rows of each head of each token as rows of a tensor: [rows · heads, head_dim].
tensor heads_of(tensor t, std::size_t heads) noexcept {
  const auto each = t.cols / heads;
  return {t.data, t.rows * heads, each, each};
}

}  // namespace

/// Queries of all heads from the normalised input `h`, not rotated yet.
void model_runner::latent_queries(const layer_weights& w, tensor h) {
  const auto& c = model_->config();
  const auto queries = scratch_->heads(h.rows, std::size_t{c.n_heads} * c.latent.query_dim());
  auto from = h;
  if (w.latent.query_a) {
    from = scratch_->q(h.rows, c.latent.query_rank);
    const std::array narrow{linear_job{w.latent.query_a.get(), nullptr, from}};
    queue_->linear(h, narrow);
    queue_->rms_norm(from, w.latent.query_gain, latent_eps, from);
  }
  const std::array job{linear_job{w.q.get(), nullptr, queries}};
  queue_->linear(from, job);
}

/// Rows of KV: the latent is normed, and the part behind it rotated.
void model_runner::finish_latents(const layer_weights& w, tensor k) {
  const auto& c = model_->config();
  const auto latents = columns_of(k, 0, c.latent.rank);
  queue_->rms_norm(latents, w.latent.latent_gain, latent_eps, latents);
  queue_->rope(columns_of(k, c.latent.rank, c.latent.rope_dim), 1, c.latent.rope_dim, plan_.positions,
               {c.rope_inv_freq, c.rope_neox, c.rope_attention_scale});
}

/// As `attend`, from the queries of `latent_queries`.
void model_runner::attend_latents(std::uint32_t layer, std::span<const attention_seq> seqs,
                                  std::span<const std::int32_t> positions, tensor projected) {
  const auto& c = model_->config();
  const auto& l = c.latent;
  const auto& w = model_->layer(layer);
  const auto rows = projected.rows;
  const auto raw = scratch_->heads(rows, std::size_t{c.n_heads} * l.query_dim());
  const auto q = scratch_->q(rows, c.q_dim());
  queue_->rope(columns_of(raw, l.plain_dim, raw.cols - l.plain_dim), c.n_heads, l.query_dim(), positions,
               {c.rope_inv_freq, c.rope_neox, c.rope_attention_scale});
  for (std::size_t head = 0; head < c.n_heads; ++head) {
    const std::array job{
        linear_job{w.latent.query_to_latent[head].get(), nullptr, columns_of(q, head * c.head_dim, l.rank)}};
    queue_->linear(columns_of(raw, head * l.query_dim(), l.plain_dim), job);
  }
  queue_->gather(columns_of(heads_of(raw, c.n_heads), l.plain_dim, l.rope_dim),
                 std::span{scratch_->every_head}.first(rows * c.n_heads),
                 columns_of(heads_of(q, c.n_heads), l.rank, l.rope_dim));
  // Sums of the rotated part, behind each head's latents, mean nothing and are not read.
  const auto attended = scratch_->h(rows, c.q_dim());
  queue_->paged_attention(blocks_, layer, {c.n_heads, c.score_scale()}, q, seqs, attended);
  const auto all_values = scratch_->heads(rows, std::size_t{c.n_heads} * part().of * l.value_dim);
  const auto values = own(all_values);
  for (std::size_t head = 0; head < c.n_heads; ++head) {
    const std::array job{linear_job{w.latent.latent_to_value[head].get(), nullptr,
                                    columns_of(values, head * l.value_dim, l.value_dim)}};
    queue_->linear(columns_of(attended, head * c.head_dim, l.rank), job);
  }
  project(w, all_values, projected);
}

}  // namespace mooncaf
