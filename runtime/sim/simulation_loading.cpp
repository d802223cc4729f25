#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/sim/simulation.hpp"

// The prefix of a placed request, from its node's disk and from another node, and how long is waited for it.

namespace mooncaf::sim {

std::uint32_t simulation::block_run::there(ticks now) const noexcept {
  if (now >= ends) return blocks;
  if (now <= begins) return 0;
  return static_cast<std::uint32_t>(static_cast<double>(blocks) * static_cast<double>(now - begins) /
                                    static_cast<double>(ends - begins));
}

/// Its device computes no prompt, and none waits.
bool simulation::idle(std::uint32_t instance) const noexcept {
  if (is_coupled()) return !coupled_[instance].computes_prompts();
  return !prefills_[instance].computing() && prefills_[instance].waiting() == 0;
}

/// Until when the loading of so many blocks, begun at `since`, is waited for.
ticks simulation::patience(std::uint32_t blocks, ticks since) const noexcept {
  const auto limit = prefetch_.limit(blocks * options_.hardware.block_tokens);
  return limit == duration::max() ? std::numeric_limits<ticks>::max() : since + limit.count();
}

/// Of leading blocks that need not be computed, wherever they are.
std::span<const block_key> simulation::reusable_keys(const request_state_record& r) const {
  const auto reusable = (r.prompt_tokens - 1) / options_.hardware.block_tokens;
  return std::span{r.keys}.first(std::min<std::size_t>(reusable, r.keys.size()));
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
  q.threshold_tokens = prefetch_.threshold_tokens();
  if (is_coupled() && coupled_[r.prefill].tier())
    q.device_blocks = coupled_[r.prefill].tier()->match(reusable_keys(r));
  q.dram_blocks = held.blocks - held.from_ssd;
  q.held_blocks = held.blocks;
  // Nobody answers at a dead machine that the conductor still counts on.
  if (where.source && conditions_[where.source.value - 1].computes()) q.remote_blocks = where.source_blocks;
  q.disk = [&](std::uint32_t blocks) {
    return duration{std::max<ticks>(links.reads - now_, 0)} +
           from_seconds(blocks * block_bytes / options_.hardware.ssd_bytes_per_s);
  };
  if (options_.layerwise) q.disk_parts = options_.hardware.disk_parts();
  q.link = [&](std::uint32_t blocks) {
    const auto source = static_cast<std::uint32_t>(where.source.value - 1);
    const auto busy = std::max({links_[source].sends, links.receives, now_}) - now_;
    const auto slower = std::min(link_speed(source), link_speed(r.prefill));
    return duration{busy} + from_seconds(blocks * block_bytes / slower + options_.hardware.network_latency_s);
  };
  return plan_load(q, prefill_estimate_);
}

/// Of the loading of `blocks` of its prefix, how much passes beside its first step, which begins with the
/// first of so many parts and takes at least as long: by computing, or by the link of the device.
ticks simulation::beside(const request_state_record& r, ticks loading, std::uint32_t blocks,
                         std::uint32_t parts) const {
  const auto cached = std::min(r.fetched_to * options_.hardware.block_tokens, r.prompt_tokens - 1);
  auto step = costs_.prefill(r.prompt_tokens, cached) / options_.pipeline;
  const auto& tier = is_coupled() ? coupled_[r.prefill].tier() : prefills_[r.prefill].tier();
  if (tier) step = tier->beside_loads(step, blocks);
  return std::min(loading, from_sec(step)) * (parts - 1) / parts;
}

/// First from the own disk, then from another node: each as far as it comes in the time that it is given.
void simulation::load(std::uint32_t slot, const placement& where) {
  auto& r = requests_[slot];
  auto& cache = caches_[r.prefill];
  const auto held = cache.match(reusable_keys(r));
  const auto loads = prefetch_.begins(idle(r.prefill)) ? plan(r, where, held) : load_plan{};

  arriving_prefix a{slot, request_table::stamp_of(r.id), {}, {}};
  if (loads.from_disk > 0) a.disk = on_disk(r.prefill, loads.from_disk);
  const auto stop = patience(loads.from_disk, now_);
  const auto hit = cache.pin(r.keys, held.blocks - held.from_ssd + a.disk.there(stop),
                             static_cast<std::uint64_t>(now_), r.pins);
  a.disk.blocks = r.disk_blocks = hit.from_ssd;
  a.disk.ends = std::min(a.disk.ends, stop);
  if (hit.from_ssd > 0) read_disk(r.prefill, hit.from_ssd);
  r.local_blocks = r.fetched_to = hit.blocks;

  auto read = std::max(a.disk.ends, now_);  // what is read is complete before what is fetched comes in
  auto ready = read;
  bool by_layers = false;
  if (hit.from_ssd > 0 && loads.from_remote == 0 && options_.layerwise &&
      prefetch_.by_layers(hit.from_ssd * options_.hardware.block_tokens, duration{read - now_}))
    ready -= beside(r, read - std::max(a.disk.begins, now_), hit.from_ssd, options_.hardware.disk_parts());
  if (loads.from_remote > 0 && where.source_blocks > hit.blocks) {
    a.link = fetch(r, where, read, by_layers);
    if (r.source != 0 && where.source_tier == holder_tier::ssd)
      read = std::max(read, links_[r.source - 1].reads);
    ready = std::max(read, a.link.ends);
  }
  if (ready <= now_) return enter_prefill(slot);
  if (by_layers) ready -= beside(r, ready - read, a.link.blocks, costs_.layers());
  r.loading = true;
  if (options_.prefetch.mode == prefetch_mode::best_effort) on_the_way_[r.prefill].push_back(a);
  events_.push(ready, event_kind::prefill_ready, slot, request_table::stamp_of(r.id));
}

/// Brings the prefix that another node holds.
/// @param begin      when it may.
/// @param by_layers  set if all of it is expected in time: then it comes beside the computation.
simulation::block_run simulation::fetch(request_state_record& r, const placement& where, ticks begin,
                                        bool& by_layers) {
  const auto source = static_cast<std::uint32_t>(where.source.value - 1);
  const double block_bytes = static_cast<double>(options_.hardware.block_bytes());
  block_run run;
  run.blocks = where.source_blocks - r.local_blocks;
  begin +=
      bring_down(source, std::span{r.keys}.first(std::min<std::size_t>(where.source_blocks, r.keys.size())));
  const auto path = way_of(source, r.prefill, block_bytes * run.blocks, begin);
  run.begins = path.begins;
  run.ends = path.ends();
  if (where.source_tier == holder_tier::ssd) run.ends = std::max(run.ends, on_disk(source, run.blocks).ends);
  const auto stop = patience(run.blocks, begin);
  by_layers = options_.layerwise &&
              prefetch_.by_layers(run.blocks * options_.hardware.block_tokens, duration{run.ends - begin});
  run.blocks = run.there(stop);
  run.ends = std::min(run.ends, stop);
  if (run.blocks == 0) return run;

  r.source = source + 1;
  r.fetched_to = r.local_blocks + run.blocks;
  caches_[source].sent(r.keys, r.local_blocks, r.fetched_to, static_cast<std::uint64_t>(now_));
  if (where.source_tier == holder_tier::ssd) read_disk(source, run.blocks);
  transfer(source, r.prefill, block_bytes * run.blocks, begin);
  caches_[r.prefill].prepare(std::span{r.keys}.first(r.fetched_to), r.local_blocks);
  ++out_.fetches;
  out_.bytes_fetched += block_bytes * run.blocks;
  return run;
}

/// The device of `instance` has nothing else to do: nobody waits for what is on the way any longer.
void simulation::stop_loading(std::uint32_t instance) {
  auto stopped = std::exchange(on_the_way_[instance], {});
  std::erase_if(stopped, [&](const arriving_prefix& a) {
    return !requests_.is_current(a.slot, a.stamp) || !requests_[a.slot].loading;
  });
  const double block_bytes = static_cast<double>(options_.hardware.block_bytes());
  for (const auto& a : stopped) {
    auto& r = requests_[a.slot];
    const auto fetched = r.fetched_to - r.local_blocks;
    const auto came = std::min(a.link.there(now_), fetched);
    const auto unread = a.disk.blocks - a.disk.there(now_);
    r.local_blocks -= unread;
    r.disk_blocks -= unread;
    r.fetched_to = r.local_blocks + came;
    if (fetched == 0) continue;
    // What has not been sent is not sent: both ends are free for others.
    const double unsent = block_bytes * (fetched - came);
    auto &from = links_[r.source - 1], &to = links_[r.prefill];
    const auto sending =
        std::min(from_sec(unsent / link_speed(r.source - 1)), std::max<ticks>(from.sends - now_, 0));
    from.sends -= sending;
    from.worked -= sending;
    to.receives -= std::min(from_sec(unsent / link_speed(r.prefill)), std::max<ticks>(to.receives - now_, 0));
    out_.bytes_fetched -= unsent;
  }
  for (const auto& a : stopped) enter_prefill(a.slot);
}

double simulation::link_speed(std::uint32_t node) const noexcept {
  return conditions_[node].link * (node < options_.prefill
                                       ? options_.hardware.nic_bytes_per_s * options_.pipeline
                                       : options_.decode_profile().nic_bytes_per_s);
}

/// Both ends work off what they had before.
simulation::way simulation::way_of(std::uint32_t from, std::uint32_t to, double bytes,
                                   ticks begin) const noexcept {
  const auto sending = from_sec(bytes / link_speed(from)), receiving = from_sec(bytes / link_speed(to));
  way w;
  w.sent = std::max(links_[from].sends, begin) + sending;
  w.received = std::max(links_[to].receives, begin) + receiving;
  w.latency = from_sec(options_.hardware.network_latency_s);
  w.begins = w.ends() - std::max(sending, receiving);
  return w;
}

/// @returns when the last byte is there.
ticks simulation::transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) {
  const auto w = way_of(from, to, bytes, begin);
  links_[from].worked += from_sec(bytes / link_speed(from));
  links_[from].sends = w.sent;
  links_[to].receives = w.received;
  return w.ends();
}

/// Blocks that a node's disk reads behind what it reads already.
simulation::block_run simulation::on_disk(std::uint32_t node, std::uint32_t blocks) const noexcept {
  const double bytes = static_cast<double>(options_.hardware.block_bytes()) * blocks;
  const auto begins = std::max(links_[node].reads, now_);
  return {begins, begins + from_sec(bytes / options_.hardware.ssd_bytes_per_s), blocks};
}

void simulation::read_disk(std::uint32_t node, std::uint32_t blocks) {
  links_[node].reads = on_disk(node, blocks).ends;
  out_.bytes_ssd_read += static_cast<double>(options_.hardware.block_bytes()) * blocks;
}

}  // namespace mooncaf::sim
