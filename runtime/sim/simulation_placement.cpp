#include <algorithm>

#include "runtime/sim/simulation.hpp"

// From a request's arrival to its place, and the bytes that its prefix needs first.

namespace mooncaf::sim {

void simulation::arrive() {
  const auto slot = requests_.open(number_++);
  auto& r = requests_[slot];
  out_.peak_live = std::max<std::uint64_t>(out_.peak_live, requests_.live());
  r.arrival = now_;
  r.prompt_tokens = upcoming_.input_tokens;
  r.output_tokens = upcoming_.output_tokens;
  if (options_.high_share > 0 || options_.low_share > 0) {
    const double draw = priority_random_.uniform();
    r.priority = draw < options_.high_share ? 0 : draw < options_.high_share + options_.low_share ? 2 : 1;
  }
  r.keys.swap(upcoming_keys_);
  ++counts(r).arrived;

  schedule_request ask;
  ask.id = r.id;
  ask.keys = r.keys;
  ask.prompt_tokens = r.prompt_tokens;
  ask.max_tokens = options_.max_tokens;
  ask.priority = r.priority;
  ask.arrival = clock();
  queue_.submit(ask, clock(), decided_);
  act_on(decided_);
}

void simulation::act_on(std::vector<decision>& decided) {
  for (auto& d : decided) {
    const auto slot = request_table::slot_of(d.id);
    if (d.outcome) {
      place(slot, *d.outcome);
    } else {
      refuse(requests_[slot], d.outcome.error());
      close(slot);
    }
  }
  decided.clear();
}

void simulation::refuse(request_state_record& r, const rejection& why) {
  auto& c = counts(r);
  ++missed_;
  switch (why.stage) {
    case reject_stage::placement:
    case reject_stage::queue:
      ++c.rejected_placement;
      break;
    case reject_stage::prefill:
      ++c.rejected_prefill;
      break;
    case reject_stage::decode:
      ++c.rejected_decode;
      break;
    case reject_stage::memory:
      ++c.rejected_memory;
      break;
    case reject_stage::at_decode:
      ++(why.cause.code == ec::out_of_space ? c.rejected_memory : c.rejected_at_decode);
      out_.wasted_prefill_s += r.prefill_seconds;
      break;
  }
}

void simulation::place(std::uint32_t slot, const placement& where) {
  auto& r = requests_[slot];
  r.prefill = static_cast<std::uint32_t>(where.prefill.value - 1);
  r.decode = static_cast<std::uint32_t>(where.decode.value - 1 - options_.prefill);
  const auto hit =
      caches_[r.prefill].pin(r.keys, where.local_blocks, static_cast<std::uint64_t>(now_), r.pins);
  r.local_blocks = r.fetched_to = hit.blocks;
  auto ready = now_;
  const double block_bytes = static_cast<double>(options_.hardware.block_bytes());
  if (hit.from_ssd > 0) ready = read_disk(r.prefill, hit.from_ssd * block_bytes);
  if (where.source && where.source_blocks > hit.blocks) ready = std::max(ready, fetch(r, where));

  const auto reusable = (r.prompt_tokens - 1) / options_.hardware.block_tokens;
  out_.blocks_dram += hit.blocks - hit.from_ssd;
  out_.blocks_ssd += hit.from_ssd;
  out_.blocks_remote += r.fetched_to - hit.blocks;
  out_.blocks_missed += std::max(reusable, r.fetched_to) - r.fetched_to;
  r.cached_tokens = r.computed = std::min(r.fetched_to * options_.hardware.block_tokens, r.prompt_tokens - 1);
  out_.prompt_tokens += r.prompt_tokens;
  out_.computed_tokens += r.prompt_tokens - r.cached_tokens;
  if (ready <= now_) return enter_prefill(slot);
  if (options_.layerwise) {
    // All but the first layer may arrive beside the computation, which then takes at least as long.
    const auto compute = from_sec(costs_.prefill(r.prompt_tokens, r.cached_tokens) / options_.pipeline);
    ready -= std::min(ready - now_, compute) * (costs_.layers() - 1) / costs_.layers();
  }
  events_.push(ready, event_kind::prefill_ready, slot);
}

/// Brings the prefix that another node holds. @returns when it is here.
ticks simulation::fetch(request_state_record& r, const placement& where) {
  const auto source = static_cast<std::uint32_t>(where.source.value - 1);
  const double bytes =
      static_cast<double>(options_.hardware.block_bytes()) * (where.source_blocks - r.local_blocks);
  caches_[source].sent(r.keys, r.local_blocks, where.source_blocks, static_cast<std::uint64_t>(now_));
  auto begin = now_;
  if (where.source_tier == holder_tier::ssd) begin = read_disk(source, bytes);
  const auto end = transfer(source, r.prefill, bytes, now_);
  r.fetched_to = where.source_blocks;
  caches_[r.prefill].prepare(std::span{r.keys}.first(r.fetched_to), r.local_blocks);
  ++out_.fetches;
  out_.bytes_fetched += bytes;
  return std::max(begin, end);
}

/// Both ends work off what they had before. @returns when the last byte is there.
ticks simulation::transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) {
  const auto speed_of = [&](std::uint32_t node) {
    return node < options_.prefill ? options_.hardware.nic_bytes_per_s * options_.pipeline
                                   : options_.decode_profile().nic_bytes_per_s;
  };
  auto& sends = links_[from].sends;
  auto& receives = links_[to].receives;
  const auto sending = from_sec(bytes / speed_of(from));
  links_[from].worked += sending;
  sends = std::max(sends, begin) + sending;
  receives = std::max(receives, begin) + from_sec(bytes / speed_of(to));
  return std::max(sends, receives) + from_sec(options_.hardware.network_latency_s);
}

ticks simulation::read_disk(std::uint32_t node, double bytes) {
  auto& reads = links_[node].reads;
  reads = std::max(reads, now_) + from_sec(bytes / options_.hardware.ssd_bytes_per_s);
  out_.bytes_ssd_read += bytes;
  return reads;
}

}  // namespace mooncaf::sim
