#include "runtime/model/latent_attention.hpp"

#include <array>

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

void latent_attention::enter(const layer_weights& w, tensor h, bool queries) {
  const std::array rows{linear_job{w.k.get(), nullptr, tools_.scratch.k(h.rows)}};
  tools_.queue.linear(h, rows);
  if (queries) this->queries(w, h);
}

/// Of all heads, not rotated yet.
void latent_attention::queries(const layer_weights& w, tensor h) {
  const auto& c = tools_.config();
  const auto made = tools_.scratch.heads(h.rows, std::size_t{c.n_heads} * c.latent.query_dim());
  auto from = h;
  if (w.latent.query_a) {
    from = tools_.scratch.q(h.rows, c.latent.query_rank);
    const std::array narrow{linear_job{w.latent.query_a.get(), nullptr, from}};
    tools_.queue.linear(h, narrow);
    tools_.queue.rms_norm(from, w.latent.query_gain, latent_eps, from);
  }
  const std::array job{linear_job{w.q.get(), nullptr, made}};
  tools_.queue.linear(from, job);
}

void latent_attention::write(std::uint32_t layer, bool kept) {
  const auto& c = tools_.config();
  const auto k = tools_.scratch.k(plan_.tokens.size());
  const auto latents = columns_of(k, 0, c.latent.rank);
  tools_.queue.rms_norm(latents, tools_.weights.layer(layer).latent.latent_gain, latent_eps, latents);
  tools_.queue.rope(columns_of(k, c.latent.rank, c.latent.rope_dim), 1, c.latent.rope_dim, plan_.positions,
                    {c.rope_inv_freq, c.rope_neox, c.rope_attention_scale});
  if (kept) tools_.queue.kv_write(blocks_, layer, k, k, plan_.seqs);
}

void latent_attention::attend(std::uint32_t layer, std::span<const attention_seq> seqs,
                              std::span<const std::int32_t> positions, tensor projected) {
  const auto& c = tools_.config();
  const auto& l = c.latent;
  const auto& w = tools_.weights.layer(layer);
  auto& queue = tools_.queue;
  const auto rows = projected.rows;
  const auto raw = tools_.scratch.heads(rows, std::size_t{c.n_heads} * l.query_dim());
  const auto q = tools_.scratch.q(rows, c.q_dim());
  queue.rope(columns_of(raw, l.plain_dim, raw.cols - l.plain_dim), c.n_heads, l.query_dim(), positions,
             {c.rope_inv_freq, c.rope_neox, c.rope_attention_scale});
  for (std::size_t head = 0; head < c.n_heads; ++head) {
    const std::array job{
        linear_job{w.latent.query_to_latent[head].get(), nullptr, columns_of(q, head * c.head_dim, l.rank)}};
    queue.linear(columns_of(raw, head * l.query_dim(), l.plain_dim), job);
  }
  queue.gather(columns_of(heads_of(raw, c.n_heads), l.plain_dim, l.rope_dim),
               std::span{tools_.scratch.every_head}.first(rows * c.n_heads),
               columns_of(heads_of(q, c.n_heads), l.rank, l.rope_dim));
  // Sums of the rotated part, behind each head's latents, mean nothing and are not read.
  const auto attended = tools_.scratch.h(rows, c.q_dim());
  queue.paged_attention(blocks_, layer, {c.n_heads, c.score_scale()}, q, seqs, attended);
  const auto all_values =
      tools_.scratch.heads(rows, std::size_t{c.n_heads} * tools_.ranks.part().of * l.value_dim);
  const auto values = tools_.ranks.own(all_values);
  for (std::size_t head = 0; head < c.n_heads; ++head) {
    const std::array job{linear_job{w.latent.latent_to_value[head].get(), nullptr,
                                    columns_of(values, head * l.value_dim, l.value_dim)}};
    queue.linear(columns_of(attended, head * c.head_dim, l.rank), job);
  }
  project(w, all_values, projected);
}

}  // namespace mooncaf
