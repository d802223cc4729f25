#include "runtime/sim/prefix_loader.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace mooncaf::sim {

prefix_loader::prefix_loader(world& w, cluster& c)
    : w_(w), c_(c), policy_(w.options.prefetch), on_the_way_(w.layout.prefill()) {}

/// Until when the loading of so many blocks, begun at `since`, is waited for.
ticks prefix_loader::patience(std::uint32_t blocks, ticks since) const noexcept {
  const auto limit = policy_.limit(blocks * w_.options.hardware.block_tokens);
  return limit == duration::max() ? std::numeric_limits<ticks>::max() : since + limit.count();
}

/// @param held  what its node holds of the prompt.
load_plan prefix_loader::plan(const request_state_record& r, const placement& where,
                              const cache_hit& held) const {
  const auto& machine = w_.options.hardware;
  const auto block_bytes = static_cast<double>(machine.block_bytes());
  const auto now = w_.time.now();
  load_question q;
  q.prompt_tokens = r.prompt_tokens;
  q.block_tokens = machine.block_tokens;
  q.threshold_tokens = policy_.threshold_tokens();
  q.device_blocks = c_.memories.on_device(r);
  q.dram_blocks = held.blocks - held.from_ssd;
  q.held_blocks = held.blocks;
  // A dead machine that the conductor still counts on does not answer.
  if (where.source && c_.machines.computes(w_.layout.machine_of(where.source)))
    q.remote_blocks = where.source_blocks;
  q.disk = [&](std::uint32_t blocks) {
    return duration{std::max<ticks>(c_.links.disk_busy_until(r.prefill) - now, 0)} +
           from_seconds(blocks * block_bytes / machine.ssd_bytes_per_s);
  };
  if (w_.options.layerwise) q.disk_parts = machine.disk_parts();
  q.link = [&](std::uint32_t blocks) {
    const auto source = w_.layout.machine_of(where.source);
    const auto slower = std::min(c_.links.speed(source), c_.links.speed(r.prefill));
    return duration{c_.links.wait(source, r.prefill)} +
           from_seconds(blocks * block_bytes / slower + machine.network_latency_s);
  };
  return plan_load(q, c_.prefills.believed());
}

/// Of the loading of `blocks` of its prefix, how much passes beside its first step, which begins with the
/// first of so many parts and takes at least as long: by computing, or by the link of the device.
ticks prefix_loader::beside(const request_state_record& r, ticks loading, std::uint32_t blocks,
                            std::uint32_t parts) const {
  const auto cached = std::min(r.fetched_to * w_.options.hardware.block_tokens, r.prompt_tokens - 1);
  auto step = w_.prefill_costs.prefill(r.prompt_tokens, cached) / w_.layout.pipeline();
  if (const auto& tier = c_.tier(r.prefill)) step = tier->beside_loads(step, blocks);
  return std::min(loading, from_sec(step)) * (parts - 1) / parts;
}

bool prefix_loader::load(std::uint32_t slot, const placement& where) {
  auto& r = w_.requests[slot];
  auto& cache = c_.memories.of(r.prefill);
  const auto& o = w_.options;
  const auto now = w_.time.now();
  const auto held = cache.match(w_.reusable_keys(r));
  const auto loads = policy_.begins(c_.idle(r.prefill)) ? plan(r, where, held) : load_plan{};

  arriving_prefix a{slot, request_table::stamp_of(r.id), {}, {}};
  if (loads.from_disk > 0) a.disk = c_.links.disk(r.prefill, loads.from_disk);
  const auto stop = patience(loads.from_disk, now);
  const auto hit = cache.pin(r.keys, held.blocks - held.from_ssd + a.disk.there(stop),
                             static_cast<std::uint64_t>(now), r.pins);
  a.disk.blocks = r.disk_blocks = hit.from_ssd;
  a.disk.ends = std::min(a.disk.ends, stop);
  if (hit.from_ssd > 0) c_.links.read_disk(r.prefill, hit.from_ssd);
  r.local_blocks = r.fetched_to = hit.blocks;

  auto read = std::max(a.disk.ends, now);  // what is read is complete before what is fetched comes in
  auto ready = read;
  bool by_layers = false;
  if (hit.from_ssd > 0 && loads.from_remote == 0 && o.layerwise &&
      policy_.by_layers(hit.from_ssd * o.hardware.block_tokens, duration{read - now}))
    ready -= beside(r, read - std::max(a.disk.begins, now), hit.from_ssd, o.hardware.disk_parts());
  if (loads.from_remote > 0 && where.source_blocks > hit.blocks) {
    a.link = fetch(r, where, read, by_layers);
    if (r.source != 0 && where.source_tier == storage_tier::ssd)
      read = std::max(read, c_.links.disk_busy_until(r.source - 1));
    ready = std::max(read, a.link.ends);
  }
  if (ready <= now) return true;
  if (by_layers) ready -= beside(r, ready - read, a.link.blocks, w_.prefill_costs.layers());
  r.loading = true;
  if (o.prefetch.mode == prefetch_mode::best_effort) on_the_way_[r.prefill].push_back(a);
  w_.time.add(ready, event_kind::prefill_ready, slot, request_table::stamp_of(r.id));
  return false;
}

/// Brings the prefix that another node holds.
/// @param begin      when it may.
/// @param by_layers  set if all of it is expected in time: then it comes beside the computation.
block_run prefix_loader::fetch(request_state_record& r, const placement& where, ticks begin,
                               bool& by_layers) {
  const auto source = w_.layout.machine_of(where.source);
  const auto& machine = w_.options.hardware;
  const auto block_bytes = static_cast<double>(machine.block_bytes());
  const bool from_disk = where.source_tier == storage_tier::ssd;
  block_run run;
  run.blocks = where.source_blocks - r.local_blocks;
  begin += c_.memories.bring_down(
      source, std::span{r.keys}.first(std::min<std::size_t>(where.source_blocks, r.keys.size())));
  const auto path = c_.links.path(source, r.prefill, block_bytes * run.blocks, begin);
  run.begins = path.begins;
  run.ends = path.ends();
  if (from_disk) run.ends = std::max(run.ends, c_.links.disk(source, run.blocks).ends);
  const auto stop = patience(run.blocks, begin);
  by_layers = w_.options.layerwise &&
              policy_.by_layers(run.blocks * machine.block_tokens, duration{run.ends - begin});
  run.blocks = run.there(stop);
  run.ends = std::min(run.ends, stop);
  if (run.blocks == 0) return run;

  r.source = source + 1;
  r.fetched_to = r.local_blocks + run.blocks;
  c_.memories.of(source).sent(r.keys, r.local_blocks, r.fetched_to,
                              static_cast<std::uint64_t>(w_.time.now()));
  if (from_disk) c_.links.read_disk(source, run.blocks);
  c_.links.transfer(source, r.prefill, block_bytes * run.blocks, begin);
  c_.memories.of(r.prefill).prepare(std::span{r.keys}.first(r.fetched_to), r.local_blocks);
  ++w_.out.fetches;
  w_.out.bytes_fetched += block_bytes * run.blocks;
  return run;
}

void prefix_loader::arrived(std::uint32_t slot) {
  auto& r = w_.requests[slot];
  r.source = 0;
  if (std::exchange(r.loading, false))
    std::erase_if(on_the_way_[r.prefill], [slot](const arriving_prefix& a) { return a.slot == slot; });
}

std::vector<std::uint32_t> prefix_loader::stop_if_idle(std::uint32_t instance) {
  if (on_the_way_[instance].empty() || !c_.idle(instance)) return {};
  std::vector<std::uint32_t> slots;
  for (const auto& a : std::exchange(on_the_way_[instance], {})) {
    if (!w_.requests.is_current(a.slot, a.stamp) || !w_.requests[a.slot].loading) continue;
    take_back(a);
    slots.push_back(a.slot);
  }
  return slots;
}

/// What has not come is neither read nor sent.
void prefix_loader::take_back(const arriving_prefix& a) {
  auto& r = w_.requests[a.slot];
  const auto now = w_.time.now();
  const auto fetched = r.fetched_to - r.local_blocks;
  const auto came = std::min(a.link.there(now), fetched);
  const auto unread = a.disk.blocks - a.disk.there(now);
  r.local_blocks -= unread;
  r.disk_blocks -= unread;
  r.fetched_to = r.local_blocks + came;
  if (fetched == 0) return;
  const double unsent = static_cast<double>(w_.options.hardware.block_bytes()) * (fetched - came);
  c_.links.take_back(r.source - 1, r.prefill, unsent);
  w_.out.bytes_fetched -= unsent;
}

}  // namespace mooncaf::sim
