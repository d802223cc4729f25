#include <algorithm>
#include <utility>

#include "runtime/sim/simulation.hpp"

// From the prefill queue to the first token, and the KV that leaves meanwhile.

namespace mooncaf::sim {

/// What of its prompt was where, now that nothing more of it comes.
/// @param here  leading blocks, with those that the device alone has.
void simulation::count_prefix(const request_state_record& r, std::uint32_t here) {
  const auto reusable = (r.prompt_tokens - 1) / options_.hardware.block_tokens;
  out_.blocks_dram += r.local_blocks - r.disk_blocks + here - r.fetched_to;
  out_.blocks_ssd += r.disk_blocks;
  out_.blocks_remote += r.fetched_to - r.local_blocks;
  out_.blocks_missed += std::max(reusable, here) - here;
  out_.prompt_tokens += r.prompt_tokens;
  out_.computed_tokens += r.prompt_tokens - r.cached_tokens;
}

void simulation::enter_prefill(std::uint32_t slot) {
  auto& r = requests_[slot];
  r.source = 0;
  if (std::exchange(r.loading, false))
    std::erase_if(on_the_way_[r.prefill], [slot](const arriving_prefix& a) { return a.slot == slot; });
  const auto here = adopt_from_device(r);
  r.cached_tokens = r.computed = std::min(here * options_.hardware.block_tokens, r.prompt_tokens - 1);
  count_prefix(r, here);
  if (!conditions_[r.prefill].computes()) return;  // until that is noticed
  if (r.fetched_to > r.local_blocks) {
    // What was fetched is held here from now on: a hot prefix has one more replica.
    caches_[r.prefill].insert(std::span{r.keys}.first(r.fetched_to), r.local_blocks,
                              static_cast<std::uint64_t>(now_));
  }
  if (is_coupled()) return enter_coupled(slot);
  prefill_entry entry;
  entry.id = r.id;
  entry.prompt_tokens = r.prompt_tokens;
  entry.start = r.cached_tokens;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.deadline = entry.arrival + from_seconds(options_.ttft_slo_s);
  prefills_[r.prefill].push(entry);
  start_prefill(r.prefill);
}

void simulation::start_prefill(std::uint32_t instance) {
  auto& p = prefills_[instance];
  const bool slowed = instance < decodes_.size() && decodes_[instance].running() > 0;
  const double slower = conditions_[instance].slower * (slowed ? costs_.prefill_beside_decode() : 1);
  const auto step = p.start(now_, slower, random_, requests_);
  neighbour_changed(instance);
  if (!step) {
    if (!on_the_way_[instance].empty() && idle(instance)) stop_loading(instance);
    return;
  }
  const auto life = conditions_[instance].lives;
  if (p.stages() > 1) events_.push(step->free, event_kind::prefill_free, instance, life);
  events_.push(step->exits, event_kind::prefill_exit, instance, life);
}

/// Prefill instance `instance` began a step, or has none to begin: where it shares its machine, the decode
/// instance beside it goes on at another speed.
void simulation::neighbour_changed(std::uint32_t instance) {
  if (decode_costs_.decode_beside_prefill() == 1 || instance >= decodes_.size()) return;
  auto& d = decodes_[instance];
  if (d.running() == 0) return;
  if (const auto turn = d.cut(now_)) events_.push(turn->at, event_kind::decode_turn, instance, turn->stamp);
}

void simulation::prefill_exit(std::uint32_t instance) {
  auto& p = prefills_[instance];
  const auto step = p.take_exit();
  if (p.stages() == 1) p.first_stage_free();
  std::uint64_t tokens = 0;
  for (const auto& c : step.chunks) tokens += c.tokens;
  // As a worker learns: of a batch nobody knows whose time it was.
  if (step.chunks.size() == 1) {
    const auto& alone = step.chunks.front();
    prefill_estimate_.observe(alone.tokens, alone.start, from_seconds(step.seconds / options_.pipeline));
  }
  for (const auto& c : step.chunks) {
    if (!requests_.is_current(c.id)) continue;  // its decode instance died meanwhile
    const auto slot = request_table::slot_of(c.id);
    auto& r = requests_[slot];
    r.prefill_seconds += part_of_step(step.seconds, c.tokens, tokens);
    r.computed += c.tokens;
    if (r.computed == r.prompt_tokens) caches_[r.prefill].prepare(r.keys, r.local_blocks);
    stream_out(r, c, step);
    if (r.computed == r.prompt_tokens) first_token(slot);
  }
  if (p.stages() == 1) start_prefill(instance);
}

/// Sends a chunk's KV to the decode side, with the cached prefix before the first one.
void simulation::stream_out(request_state_record& r, const prefill_chunk& c, const prefill_step& step) {
  if (r.output_tokens <= 1) return;
  const auto to = options_.prefill + r.decode;
  const auto per_token = static_cast<double>(options_.hardware.kv_bytes_per_token);
  if (!options_.layerwise) {
    if (r.computed < r.prompt_tokens) return;
    const double bytes = per_token * r.prompt_tokens;
    out_.bytes_streamed += bytes;
    r.kv_sent = transfer(r.prefill, to, bytes, now_);
    return;
  }
  const double bytes = per_token * (c.tokens + (c.start == r.cached_tokens ? c.start : 0));
  out_.bytes_streamed += bytes;
  // Layer by layer beside the computation; the last layer follows it.
  const auto sent = transfer(r.prefill, to, bytes, step.began + (step.exits - step.began) / costs_.layers());
  const auto last_layer = from_sec(bytes / options_.hardware.nic_bytes_per_s / costs_.layers() +
                                   options_.hardware.network_latency_s);
  r.kv_sent = std::max({r.kv_sent, sent, now_ + last_layer});
}

void simulation::first_token(std::uint32_t slot) {
  auto& r = requests_[slot];
  r.first_token = now_;
  if (r.delivered == 0) {
    const double ttft = to_sec(now_ - r.arrival);
    out_.ttft.add(ttft);
    missed_ += ttft > options_.ttft_slo_s;
    out_.queueing.add(std::max(ttft - r.prefill_seconds / options_.pipeline, 0.0));
  } else {
    resumes(slot);
  }
  ++out_.output_tokens;
  conductor_.first_token(r.id, r.prompt_tokens - r.cached_tokens, r.cached_tokens,
                         from_seconds(r.prefill_seconds / options_.pipeline), clock());
  r.decode_tokens = std::max(r.output_tokens, 1u) - 1;
  const bool decodes_here = is_coupled() && r.decode_tokens > 0;
  auto& cache = caches_[r.prefill];
  if (!(decodes_here ? coupled_[r.prefill].decode(slot, requests_) : stays_on_device(r)))
    cache.insert(r.keys, r.local_blocks, static_cast<std::uint64_t>(now_));
  cache.unpin(r.pins);
  report(static_cast<std::uint32_t>(prefill_id(r.prefill).value), {});
  if (r.decode_tokens == 0) {
    if (auto* const device = device_of(r.prefill)) device->let_go(r.id.value);
    return finish(slot, r.delivered > 0 ? tbt_of_before(slot) : 0);
  }
  if (decodes_here) return;
  events_.push(std::max(r.kv_sent, now_), event_kind::kv_arrived, slot, request_table::stamp_of(r.id));
}

}  // namespace mooncaf::sim
