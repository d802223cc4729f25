#include "runtime/model/attention.hpp"

#include <array>

#include "runtime/model/latent_attention.hpp"

namespace mooncaf {

namespace {

/// Several heads of queries for one of keys and values, rotated by position.
class grouped_attention final : public attention {
 public:
  grouped_attention(const pass_tools& tools, const kv_layout& blocks, const pass_plan& plan)
      : attention(tools, blocks, plan) {}

  void enter(const layer_weights& w, tensor h, bool queries) override {
    const std::array jobs{linear_job{w.k.get(), w.k_bias, tools_.scratch.k(h.rows)},
                          linear_job{w.v.get(), w.v_bias, tools_.scratch.v(h.rows)},
                          linear_job{w.q.get(), w.q_bias, tools_.scratch.q(h.rows, tools_.config().q_dim())}};
    tools_.queue.linear(h, std::span{jobs}.first(queries ? 3 : 2));
    tools_.adapt(lora_site::k, h, jobs[0].out);
    tools_.adapt(lora_site::v, h, jobs[1].out);
    if (queries) tools_.adapt(lora_site::q, h, jobs[2].out);
  }

  void queries(const layer_weights& w, tensor h) override {
    const std::array job{linear_job{w.q.get(), w.q_bias, tools_.scratch.q(h.rows, tools_.config().q_dim())}};
    tools_.queue.linear(h, job);
    tools_.adapt(lora_site::q, h, job[0].out);
  }

  void write(std::uint32_t layer, bool kept) override {
    const auto& c = tools_.config();
    const auto k = tools_.scratch.k(plan_.tokens.size());
    if (c.qk_norm)
      tools_.queue.rms_norm_heads(k, c.n_kv_heads, c.head_dim, tools_.weights.layer(layer).k_gain, c.rms_eps);
    tools_.queue.rope(k, c.n_kv_heads, c.head_dim, plan_.positions,
                      {c.inv_freq(layer), c.rope_neox, c.rope_attention_scale});
    if (kept) tools_.queue.kv_write(blocks_, layer, k, tools_.scratch.v(plan_.tokens.size()), plan_.seqs);
  }

  void attend(std::uint32_t layer, std::span<const attention_seq> seqs,
              std::span<const std::int32_t> positions, tensor projected) override {
    const auto& c = tools_.config();
    const auto& w = tools_.weights.layer(layer);
    const auto q = tools_.scratch.q(projected.rows, c.q_dim());
    if (c.qk_norm) tools_.queue.rms_norm_heads(q, c.n_heads, c.head_dim, w.q_gain, c.rms_eps);
    tools_.queue.rope(q, c.n_heads, c.head_dim, positions,
                      {c.inv_freq(layer), c.rope_neox, c.rope_attention_scale});
    const auto attended = tools_.scratch.h(projected.rows, c.q_dim() * tools_.ranks.part().of);
    tools_.queue.paged_attention(blocks_, layer,
                                 {c.n_heads, c.score_scale(), c.window(layer), c.attention_softcap, w.sinks},
                                 q, seqs, tools_.ranks.own(attended));
    project(w, attended, projected);
  }
};

}  // namespace

std::unique_ptr<attention> attention::make(const pass_tools& tools, const kv_layout& blocks,
                                           const pass_plan& plan) {
  if (tools.config().latent.rank != 0) return std::make_unique<latent_attention>(tools, blocks, plan);
  return std::make_unique<grouped_attention>(tools, blocks, plan);
}

void attention::project(const layer_weights& w, tensor attended, tensor projected) {
  tools_.ranks.gather(attended);
  const std::array out{linear_job{w.attention_out.get(), w.attention_out_bias, tools_.ranks.own(projected)}};
  tools_.queue.linear(attended, out);
  tools_.ranks.gather(projected);
  tools_.adapt(lora_site::attention_out, attended, projected);
}

}  // namespace mooncaf
