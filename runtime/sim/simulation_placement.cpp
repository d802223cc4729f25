#include <algorithm>

#include "runtime/sim/simulation.hpp"

// From a request's arrival to its place, and the bytes that its prefix needs first.

namespace mooncaf::sim {

void simulation::arrive() {
  copy_hot_blocks();
  const auto slot = requests_.open(number_++);
  auto& r = requests_[slot];
  out_.peak_live = std::max<std::uint64_t>(out_.peak_live, requests_.live());
  r.arrival = now_;
  r.session = source_->session_given();
  r.prompt_tokens = upcoming_.input_tokens;
  r.output_tokens = upcoming_.output_tokens;
  if (options_.high_share > 0 || options_.low_share > 0) {
    const double draw = priority_random_.uniform();
    r.priority = draw < options_.high_share ? 0 : draw < options_.high_share + options_.low_share ? 2 : 1;
  }
  r.keys.swap(upcoming_keys_);
  ++counts(r).arrived;
  ask(slot);
}

void simulation::ask(std::uint32_t slot) {
  const auto& r = requests_[slot];
  schedule_request question;
  question.id = r.id;
  question.keys = r.keys;
  question.prompt_tokens = r.prompt_tokens;
  question.max_tokens = max_tokens_of(r);
  question.priority = r.priority;
  question.arrival = time_point{duration{r.arrival}};
  question.resumed = r.delivered > 0;
  queue_.submit(question, clock(), decided_);
  act_on(decided_);
}

void simulation::act_on(std::vector<decision>& decided) {
  for (auto& d : decided) {
    const auto slot = request_table::slot_of(d.id);
    if (d.outcome) {
      place(slot, *d.outcome);
    } else if (d.outcome.error().cause.code == ec::unavailable) {
      unplaced(slot, d.outcome.error());
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

/// What a worker does when the request comes: it looks what there is, and loads what beats computing.
/// @param held  what its node holds of the prompt.
load_plan simulation::plan(const request_state_record& r, const placement& where,
                           const cache_hit& held) const {
  const auto& links = links_[r.prefill];
  const auto block_bytes = static_cast<double>(options_.hardware.block_bytes());
  load_question q;
  q.prompt_tokens = r.prompt_tokens;
  q.block_tokens = options_.hardware.block_tokens;
  q.threshold_tokens = options_.prefetch_threshold;
  q.dram_blocks = held.blocks - held.from_ssd;
  q.held_blocks = held.blocks;
  // Nobody answers at a dead machine that the conductor still counts on.
  if (where.source && conditions_[where.source.value - 1].computes()) q.remote_blocks = where.source_blocks;
  q.disk = [&](std::uint32_t blocks) {
    return duration{std::max<ticks>(links.reads - now_, 0)} +
           from_seconds(blocks * block_bytes / options_.hardware.ssd_bytes_per_s);
  };
  q.link = [&](std::uint32_t blocks) {
    const auto source = static_cast<std::uint32_t>(where.source.value - 1);
    const auto busy = std::max({links_[source].sends, links.receives, now_}) - now_;
    const auto slower = std::min(link_speed(source), link_speed(r.prefill));
    return duration{busy} + from_seconds(blocks * block_bytes / slower + options_.hardware.network_latency_s);
  };
  return plan_load(q, prefill_estimate_);
}

void simulation::place(std::uint32_t slot, const placement& where) {
  auto& r = requests_[slot];
  r.placed = true;
  r.prefill = static_cast<std::uint32_t>(where.prefill.value - 1);
  r.decode = static_cast<std::uint32_t>(where.decode.value - 1 - options_.prefill);
  const auto reusable = (r.prompt_tokens - 1) / options_.hardware.block_tokens;
  auto& cache = caches_[r.prefill];
  const auto held =
      cache.match(std::span<const block_key>{r.keys}.first(std::min<std::size_t>(reusable, r.keys.size())));
  const auto loads = plan(r, where, held);
  const auto hit = cache.pin(r.keys, held.blocks - held.from_ssd + loads.from_disk,
                             static_cast<std::uint64_t>(now_), r.pins);
  r.local_blocks = r.fetched_to = hit.blocks;
  auto read = now_;  // what is read from disk is complete before the computation begins
  const double block_bytes = static_cast<double>(options_.hardware.block_bytes());
  if (hit.from_ssd > 0) read = read_disk(r.prefill, hit.from_ssd * block_bytes);
  auto ready = read;
  if (loads.from_remote > 0 && where.source_blocks > hit.blocks) {
    const double bytes = block_bytes * (where.source_blocks - hit.blocks);
    if (where.source_tier == holder_tier::ssd)
      read = std::max(read, read_disk(static_cast<std::uint32_t>(where.source.value - 1), bytes));
    ready = std::max(read, fetch(r, where));
  }

  out_.blocks_dram += hit.blocks - hit.from_ssd;
  out_.blocks_ssd += hit.from_ssd;
  out_.blocks_remote += r.fetched_to - hit.blocks;
  out_.blocks_missed += std::max(reusable, r.fetched_to) - r.fetched_to;
  r.cached_tokens = r.computed = std::min(r.fetched_to * options_.hardware.block_tokens, r.prompt_tokens - 1);
  out_.prompt_tokens += r.prompt_tokens;
  out_.computed_tokens += r.prompt_tokens - r.cached_tokens;
  if (ready <= now_) return enter_prefill(slot);
  if (options_.layerwise) {
    // All but the first layer that is fetched may arrive beside the computation, which then takes at least as
    // long.
    const auto compute = from_sec(costs_.prefill(r.prompt_tokens, r.cached_tokens) / options_.pipeline);
    ready -= std::min(ready - read, compute) * (costs_.layers() - 1) / costs_.layers();
  }
  events_.push(ready, event_kind::prefill_ready, slot, request_table::stamp_of(r.id));
}

/// Brings the prefix that another node holds. @returns when it is here.
ticks simulation::fetch(request_state_record& r, const placement& where) {
  const auto source = static_cast<std::uint32_t>(where.source.value - 1);
  const double bytes =
      static_cast<double>(options_.hardware.block_bytes()) * (where.source_blocks - r.local_blocks);
  caches_[source].sent(r.keys, r.local_blocks, where.source_blocks, static_cast<std::uint64_t>(now_));
  const auto end = transfer(source, r.prefill, bytes, now_);
  r.fetched_to = where.source_blocks;
  r.source = source + 1;
  caches_[r.prefill].prepare(std::span{r.keys}.first(r.fetched_to), r.local_blocks);
  ++out_.fetches;
  out_.bytes_fetched += bytes;
  return end;
}

/// As a conductor does twice a second; here when a request comes, since nothing becomes hot otherwise.
void simulation::copy_hot_blocks() {
  constexpr ticks interval = from_sec(0.5);
  if (options_.hot_copy_share == 0 || now_ - copies_planned_ < interval) return;
  copies_planned_ = now_;
  for (auto& copy : conductor_.copy_hot_blocks(clock())) {
    const auto source = static_cast<std::uint32_t>(copy.source.value - 1);
    const auto target = static_cast<std::uint32_t>(copy.target.value - 1);
    const double bytes = static_cast<double>(options_.hardware.block_bytes() * copy.blocks.size());
    const auto there = transfer(source, target, bytes, now_);
    out_.hot_copies += copy.blocks.size();
    out_.bytes_fetched += bytes;
    copies_.emplace(copies_made_, copy_under_way{std::move(copy), now_});
    events_.push(there, event_kind::copy_arrived, copies_made_++);
  }
}

void simulation::copy_arrived(std::uint32_t number) {
  const auto [copy, begun] = std::move(copies_.extract(number).mapped());
  const auto &from = conditions_[copy.source.value - 1], &to = conditions_[copy.target.value - 1];
  if (!to.computes() || from.died >= begun || to.died >= begun) return;
  caches_[copy.target.value - 1].copy(copy.blocks, static_cast<std::uint64_t>(now_));
}

double simulation::link_speed(std::uint32_t node) const noexcept {
  return conditions_[node].link * (node < options_.prefill
                                       ? options_.hardware.nic_bytes_per_s * options_.pipeline
                                       : options_.decode_profile().nic_bytes_per_s);
}

/// Both ends work off what they had before. @returns when the last byte is there.
ticks simulation::transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) {
  auto& sends = links_[from].sends;
  auto& receives = links_[to].receives;
  const auto sending = from_sec(bytes / link_speed(from));
  links_[from].worked += sending;
  sends = std::max(sends, begin) + sending;
  receives = std::max(receives, begin) + from_sec(bytes / link_speed(to));
  return std::max(sends, receives) + from_sec(options_.hardware.network_latency_s);
}

ticks simulation::read_disk(std::uint32_t node, double bytes) {
  auto& reads = links_[node].reads;
  reads = std::max(reads, now_) + from_sec(bytes / options_.hardware.ssd_bytes_per_s);
  out_.bytes_ssd_read += bytes;
  return reads;
}

}  // namespace mooncaf::sim
