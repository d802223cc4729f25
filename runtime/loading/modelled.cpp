#include "runtime/loading/modelled.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/text/dummy_vocab.hpp"

namespace mooncaf {

namespace {

constexpr std::string_view prefix = "model:";

static_assert(sim::first_answer_word >= static_cast<std::int32_t>(smallest_dummy_vocab));

std::chrono::nanoseconds shrink(std::chrono::nanoseconds t, double scale) {
  return std::max<std::chrono::nanoseconds>(from_seconds(to_seconds(t) / scale),
                                            std::chrono::microseconds(1));
}

/// Room for the blocks that this process's instances hold, by the profile.
std::uint64_t memory_bytes(const options& o, const sim::profile& p) {
  std::uint64_t tokens = 0;
  if (o.cluster.prefill) tokens += o.prefill.instances * o.model.pipeline * p.dram_tokens;
  if (o.cluster.decode) tokens += o.decode.instances * p.device_kv_tokens;
  if (tokens == 0) tokens = p.dram_tokens;
  return std::max<std::uint64_t>(tokens * sim::modelled_layout(p).bytes_per_token(), MiB);
}

}  // namespace

result<std::optional<sim::profile>> modelled_by(const model_options& o) {
  if (!o.device.starts_with(prefix)) return std::nullopt;
  // A figure that the file leaves out would be some other machine's, unnoticed.
  std::vector<std::string> assumed;
  const auto name = o.device.substr(prefix.size());
  auto p = sim::load_profile(name, &assumed);
  if (!p) return fail(p.error());
  if (assumed.empty()) return std::move(*p);
  std::string missing;
  for (const auto& a : assumed) missing += (missing.empty() ? "" : ", ") + a.substr(0, a.find(' '));
  return fail(ec::invalid_argument, name + " does not give " + missing);
}

void follow_profile(options& o, const sim::profile& p) {
  o.model.block_tokens = p.block_tokens;
  o.prefill.chunk_tokens = o.prefill.max_batch_tokens = p.chunk_tokens;
  o.decode.max_batch = p.max_batch;
  o.cache.dram_bytes = memory_bytes(o, p);
  auto& s = o.scheduler;
  for (auto* t : {&s.ttft_slo, &s.tbt_slo, &s.predicted_decode, &s.elastic_hold, &s.down_after,
                  &s.scale_every, &o.prefill.prefetch_timeout_base, &o.prefill.prefetch_timeout_per_ki_token})
    *t = shrink(*t, o.model.time_scale);
}

served_model serve_modelled(const sim::profile& p) {
  served_model out;
  const auto layout = sim::modelled_layout(p);
  auto& shape = out.identity.config;
  shape.name = p.name;
  shape.n_layers = layout.n_layers;
  shape.n_heads = shape.n_kv_heads = layout.n_kv_heads;
  shape.dim = shape.head_dim = layout.head_dim;
  shape.vocab_size = sim::modelled_vocab;
  shape.context_length = 1 << 24;
  out.identity.fingerprint = sim::modelled_fingerprint(p);
  // Neither can fail: the vocabulary is large enough, and its template is of a known family.
  out.text = *tokenizer::from_vocab(*dummy_vocab(sim::modelled_vocab));
  out.chat = std::make_shared<chat_template>(*chat_template::recognise(out.text, "auto"));
  return out;
}

std::vector<timing_sample> modelled_samples(const sim::profile& p, worker_role role, double time_scale,
                                            std::uint32_t stages) {
  std::vector<timing_sample> out;
  for (const auto& s :
       role == worker_role::prefill ? sim::prefill_samples(p, stages) : sim::decode_samples(p)) {
    out.push_back({std::llround(s.a), std::llround(s.b), from_seconds(s.seconds / time_scale).count()});
  }
  return out;
}

}  // namespace mooncaf
