#include "runtime/sim/prefill_side.hpp"

#include <algorithm>

namespace mooncaf::sim {

namespace {

prefill_batch_options prefill_options_of(const simulation_options& o) {
  prefill_batch_options p;
  p.chunk_tokens = o.hardware.chunk_tokens;
  p.max_batch_tokens = o.hardware.chunk_tokens;
  p.aging = from_seconds(o.ttft_slo_s);
  p.block_tokens = std::min(o.hardware.block_tokens, o.hardware.chunk_tokens);
  return p;
}

prefill_model told(const world& w) {
  auto samples = prefill_samples(w.options.hardware, w.layout.pipeline());
  for (auto& s : samples) s.seconds *= w.options.prefill_calibration;
  return prefill_model{samples};
}

}  // namespace

prefill_side::prefill_side(world& w, const fleet& machines, node_links& links, learned_links& learned,
                           node_memories& memories)
    : w_(w),
      machines_(machines),
      links_(links),
      learned_(learned),
      memories_(memories),
      believed_(w.layout.prefill(), told(w)) {
  if (w.layout.coupled()) return;
  const auto& o = w.options;
  const auto stages = w.layout.pipeline();
  all_.reserve(w.layout.prefill());
  for (std::uint32_t i = 0; i < w.layout.prefill(); ++i)
    all_.emplace_back(w.prefill_costs, prefill_options_of(o),
                      tier_of(o.hardware, stages, {}, memories.of(i).tree()), stages,
                      o.hardware.network_latency_s, o.jitter);
}

void prefill_side::push(const request_state_record& r) {
  prefill_entry entry;
  entry.id = r.id;
  entry.prompt_tokens = r.prompt_tokens;
  entry.start = r.cached_tokens;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.deadline = time_point{duration{r.due}};
  all_[r.prefill].push(entry);
}

bool prefill_side::start(std::uint32_t instance, bool beside_decode) {
  const double slower =
      machines_.slower(instance) * (beside_decode ? w_.prefill_costs.prefill_beside_decode() : 1);
  const auto step = all_[instance].start(w_.time.now(), slower, w_.noise, w_.requests);
  if (!step) return false;
  const auto life = machines_.life(instance);
  if (has_stages()) w_.time.add(step->free, event_kind::prefill_free, instance, life);
  w_.time.add(step->exits, event_kind::prefill_exit, instance, life);
  return true;
}

prefill_step prefill_side::take_exit(std::uint32_t instance) {
  auto step = all_[instance].take_exit();
  if (!has_stages()) first_stage_free(instance);
  // A worker learns from a prompt that was computed alone: how long one of a batch took is not known.
  if (step.chunks.size() == 1) {
    const auto& alone = step.chunks.front();
    believed_[instance].observe(alone.tokens, alone.start, duration{step.stage});
  }
  return step;
}

bool prefill_side::computed(request_state_record& r, const prefill_chunk& chunk, const prefill_step& step) {
  r.prefill_seconds += part_of_step(step.seconds, chunk.tokens, step.tokens);
  r.computing +=
      from_seconds(part_of_step(to_seconds(duration{step.stage}), chunk.tokens, step.tokens)).count();
  r.computed += chunk.tokens;
  memories_.of(r.prefill).prepare(full_blocks(r), r.published);
  stream_out(r, chunk, step);
  publish(r);
  return r.computed == r.prompt_tokens;
}

std::span<const block_key> prefill_side::full_blocks(const request_state_record& r) const {
  const auto full = r.computed / w_.options.hardware.block_tokens;
  return std::span{r.keys}.first(std::min<std::size_t>(full, r.keys.size()));
}

/// Other prompts can use what is computed of this one, which keeps it until it has left.
void prefill_side::publish(request_state_record& r) {
  r.published = memories_.of(r.prefill).insert(full_blocks(r), r.published,
                                               static_cast<std::uint64_t>(w_.time.now()), &r.pins);
}

/// Sends a chunk's KV to the decode side, with the cached prefix before the first one.
void prefill_side::stream_out(request_state_record& r, const prefill_chunk& c, const prefill_step& step) {
  if (r.output_tokens <= 1) return;
  const auto& machine = w_.options.hardware;
  const auto to = w_.layout.decode_machine(r.decode);
  const auto now = w_.time.now();
  const auto per_token = static_cast<double>(machine.kv_bytes_per_token);
  if (!w_.options.layerwise) {
    if (r.computed < r.prompt_tokens) return;
    const double bytes = per_token * r.prompt_tokens;
    w_.out.bytes_streamed += bytes;
    r.kv_sent = links_.transfer(r.prefill, to, bytes, now);
    learned_.moves(r.prefill, link_flow::out, to, bytes, now, r.kv_sent);
    return;
  }
  const double bytes = per_token * (c.tokens + (c.start == r.cached_tokens ? c.start : 0));
  w_.out.bytes_streamed += bytes;
  // All layers but the last leave beside the computation of the next ones; the last follows it.
  const auto layers = w_.prefill_costs.layers();
  const auto first_layer = step.began + (step.exits - step.began) / layers;
  const link_share all{r.prefill, bytes};
  const auto way = links_.path({&all, 1}, to, first_layer);
  const auto sent = links_.transfer({&all, 1}, to, first_layer);
  learned_.moves(r.prefill, link_flow::out, to, bytes, way.begins,
                 sent);  // slices do not wait for their layers
  const auto last_layer = from_sec(bytes / machine.nic_bytes_per_s / layers + machine.network_latency_s);
  r.kv_sent = std::max({r.kv_sent, sent, now + last_layer});
}

}  // namespace mooncaf::sim
