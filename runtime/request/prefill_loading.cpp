// A prefill worker before it computes: it looks which blocks of the prompt there are, weighs loading them
// against computing, and loads.

#include <algorithm>
#include <tuple>

#include "runtime/request/prefill_core.hpp"

namespace mooncaf {

void prefill_core::begin_look(const attempt& a) {
  actions_.emplace_back(prefill_action::look{a.claim.owner(), a.claim.reusable_keys()});
}

void prefill_core::publish(const attempt& a) {
  turns_.there(a.claim.owner(), a.computed / options_.batch.block_tokens);
  look_in_turn();
}

void prefill_core::look_in_turn() {
  for (const auto owner : turns_.take_ready())
    if (const auto* a = find(owner); a != nullptr && !a->over) begin_look(*a);
}

void prefill_core::looked(std::uint64_t owner, const prefix_view& here, time_point now) {
  if (auto* a = find(owner); a != nullptr && !a->over) weigh(*a, here, now);
}

void prefill_core::weigh(attempt& a, const prefix_view& here, time_point now) {
  // One walk over the prompt: blocks on the device, in memory, on the disk or another node, and the rest.
  const auto& where = a.placement;
  load_question q;
  if (options_.on_device) q.device_blocks = options_.on_device(a.claim.reusable_keys());
  q.prompt_tokens = a.prompt_tokens;
  q.block_tokens = options_.batch.block_tokens;
  q.dram_blocks = here.dram_blocks;
  q.held_blocks = here.held_blocks;
  if (where.source && where.source != self_) q.remote_blocks = std::min(where.source_blocks, a.reusable);
  q.threshold_tokens = prefetch_.threshold_tokens();
  q.disk_parts = options_.disk_parts;
  q.ask([&](std::uint32_t blocks) { return duration{here.disk_wait_ns + here.disk_block_ns * blocks}; },
        [&](std::uint32_t blocks) { return options_.link(where.source, blocks, now); });
  if (prefetch_.begins(idle())) {
    a.plan =
        decisions_.run(journal::weigh_load{request_id{a.claim.owner()}, now, q, computing_model_.state()});
  }
  const auto reading = a.plan.from_disk;
  a.from_disk = reading > 0 && a.plan.from_remote == 0 && options_.disk_parts > 1 &&
                prefetch_.by_layers(tokens_of(reading), q.read);
  a.on_disk_until = here.held_blocks;
  pin(a, a.from_disk ? 0 : reading, now);
}

void prefill_core::pin(attempt& a, std::uint32_t from_ssd, time_point now) {
  a.at = phase::pinning;
  a.load_began = now;
  actions_.emplace_back(prefill_action::pin{a.claim.owner(), a.claim.pin(from_ssd)});
  if (from_ssd == 0) return;
  remind(a);
  turns_.loads(a.claim.owner(), true);
  look_in_turn();
}

void prefill_core::pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held) {
  auto* a = find(owner);
  if (a == nullptr || a->over) return;
  const auto missing = a->claim.pinned(turn, held);
  if (!missing) return;
  a->computed = tokens_of(a->claim.have());
  a->stats.ssd_tokens = tokens_of(held.from_ssd);
  a->stats.dram_tokens = a->computed - a->stats.ssd_tokens;
  a->at = phase::reserving;
  publish(*a);
  actions_.emplace_back(prefill_action::reserve{owner, *missing});
}

void prefill_core::not_pinned(std::uint64_t owner, std::uint32_t turn, const error& why) {
  const auto* a = find(owner);
  if (a != nullptr && a->claim.awaits(turn)) refused(owner, why);
}

void prefill_core::refused(std::uint64_t owner, const error& why) {
  const auto* a = find(owner);
  if (a != nullptr && !a->over) fail(owner, why, true);
}

void prefill_core::reserved(std::uint64_t owner, std::span<const slot_index> slots, time_point now) {
  auto* a = find(owner);
  if (a == nullptr || a->over) return;
  a->claim.reserved(slots);
  fetch(*a, now);
}

void prefill_core::fetch(attempt& a, time_point now) {
  if (a.from_disk && a.on_disk_until > a.claim.have())
    return load(a, self_, a.on_disk_until, duration{}, now);
  const auto source = a.placement.source;
  const auto there = a.plan.from_remote > 0 ? std::min(a.placement.source_blocks, a.reusable) : 0;
  if (there <= a.claim.have() || !prefetch_.begins(idle())) {
    adopt_from_device(a);
    return enqueue(a, now);
  }
  load(a, source, there, options_.link(source, there - a.claim.have(), now), now);
}

/// Blocks behind those in memory that only the device holds. Their slots stay empty, unless KV goes to
/// another node: then the first pass writes them, too, and they leave with the blocks that it makes.
void prefill_core::adopt_from_device(attempt& a) {
  if (!options_.keep_on_device) return;
  const auto have = a.computed / options_.batch.block_tokens;
  const auto held = options_.keep_on_device(a.claim.owner(), a.claim.reusable_keys(), have);
  if (held <= have) return;
  a.on_device = tokens_of(held - have);
  a.computed = tokens_of(held);
  a.stats.dram_tokens += a.on_device;
  actions_.emplace_back(prefill_action::found_on_device{a.claim.owner(), held - have});
}

void prefill_core::load(attempt& a, node_id source, std::uint32_t until, duration expected, time_point now) {
  a.coming = until - a.claim.have();
  a.at = phase::fetching;
  a.load_began = now;
  auto plan = a.claim.fetch(source, until, a.plan.worth.count());
  if (source != self_) plan.beside = a.placement.beside;
  a.by_layers = prefetch_.by_layers(tokens_loading(a), expected);
  a.arrival = layer_arrival{options_.layers, now};
  actions_.emplace_back(prefill_action::fetch{a.claim.owner(), std::move(plan), a.by_layers});
  remind(a);
  turns_.loads(a.claim.owner(), true);
  look_in_turn();
}

void prefill_core::fetched(std::uint64_t owner, const remote_blocks& got, time_point now) {
  auto* a = find(owner);
  if (a == nullptr) return;
  if (!a->claim.loading()) return;  // it was given up
  a->claim.fetched();
  if (a->over) return end(owner);
  const auto took = now - a->load_began;
  a->stats.fetch_ns = took.count();
  decisions_.run(journal::load_ended{request_id{owner}, now, a->from_disk ? self_ : a->placement.source,
                                     a->coming, static_cast<std::uint32_t>(got.blocks.size()), took});
  if (a->early) return settle(*a, got, now);
  // Others may be reading the same: it joins them.
  if (a->from_disk && got.blocks.size() < a->coming) return pin_again(*a, a->coming, now);
  a->computed += adopt(*a, got);
  publish(*a);
  adopt_from_device(*a);
  enqueue(*a, now);
}

/// Publishes fetched blocks, which were verified. @returns their tokens.
std::uint32_t prefill_core::adopt(attempt& a, const remote_blocks& got) {
  auto items = a.claim.adopt(got);
  const auto tokens = tokens_of(static_cast<std::uint32_t>(items.size()));
  (a.from_disk ? a.stats.ssd_tokens : a.stats.remote_tokens) = tokens;
  if (!items.empty() && !a.from_disk)
    actions_.emplace_back(prefill_action::commit{a.claim.owner(), std::move(items), true});
  return tokens;
}

void prefill_core::pin_again(attempt& a, std::uint32_t from_ssd, time_point now) {
  a.from_disk = false;
  a.by_layers = false;
  a.plan.from_disk = from_ssd;
  actions_.emplace_back(prefill_action::release{a.claim.owner()});
  pin(a, from_ssd, now);
}

// ---- waiting for it ----

std::uint32_t prefill_core::tokens_loading(const attempt& a) const {
  if (a.at == phase::pinning) return a.from_disk ? 0 : tokens_of(a.plan.from_disk);
  return a.claim.loading() ? tokens_of(a.coming) : 0;
}

void prefill_core::remind(const attempt& a) {
  const auto limit = prefetch_.limit(tokens_loading(a));
  if (limit < duration::max()) actions_.emplace_back(prefill_action::remind{a.claim.owner(), limit});
}

void prefill_core::waited(std::uint64_t owner, time_point now) {
  if (auto* a = find(owner)) maybe_stop(*a, now);
}

void prefill_core::maybe_stop(attempt& a, time_point now) {
  const auto tokens = tokens_loading(a);
  // A pass that is under way waits for its layers as long as it was given.
  if (a.over || a.early || tokens == 0) return;
  if (!prefetch_.ends(tokens, now - a.load_began, idle())) return;
  if (a.at != phase::pinning && !a.from_disk) return stop_loading(a);
  // Blocks that were read until now are found in memory. The slots of the others belong to the disk's reads.
  a.claim.fetched();
  pin_again(a, 0, now);
}

void prefill_core::stop_loading(const attempt& a) {
  if (a.claim.loading()) actions_.emplace_back(prefill_action::stop_fetch{a.id});
}

void prefill_core::layers_in(std::uint64_t owner, std::uint32_t layers, time_point now) {
  auto* a = find(owner);
  if (a == nullptr || !a->claim.loading()) return;
  a->arrival.landed(layers, now);
  use_idle_device(now);
}

void prefill_core::use_idle_device(time_point now) {
  if (!idle()) return;
  attempt* best = nullptr;
  const auto urgency = [](const attempt& a) { return std::tuple{a.priority, a.deadline, a.claim.owner()}; };
  for (auto& [owner, a] : attempts_) {
    if (a.at != phase::pinning && a.at != phase::fetching) continue;
    maybe_stop(a, now);
    if (!a.by_layers || a.over || !a.claim.loading()) continue;
    if (a.arrival.may_begin(first_pass(a)) && (best == nullptr || urgency(a) < urgency(*best))) best = &a;
  }
  if (best != nullptr) begin_early(*best, now);
}

/// The time of the first pass behind the prefix: that of computing, or that of bringing the prefix to the
/// device.
duration prefill_core::first_pass(const attempt& a) const {
  const auto blocks = a.claim.have() + a.coming;
  const auto behind = tokens_of(blocks);
  const auto left = a.prompt_tokens - behind;
  const auto computing = computing_model_.estimate(std::min(left, options_.batch.chunk_tokens), behind);
  if (!options_.to_device) return computing;
  const auto keys = a.claim.reusable_keys();
  return std::max(computing, options_.to_device(std::span{keys}.first(a.claim.have()), blocks));
}

void prefill_core::begin_early(attempt& a, time_point now) {
  a.early = true;
  a.computed = tokens_of(a.claim.have() + a.coming);
  enqueue(a, now);  // alone, since the device is idle: no other request waits for its layers
}

void prefill_core::settle(attempt& a, const remote_blocks& got, time_point now) {
  if (a.again || got.blocks.size() < a.coming) {
    a.again = true;
    return compute_again(a, now);
  }
  const auto loaded = adopt(a, got);
  publish(a);
  a.early = false;
  const auto have = tokens_of(a.claim.have());
  if (a.remote && !a.streams) {
    open_stream(a, have + loaded);
  } else if (a.streams && options_.layerwise) {
    actions_.emplace_back(prefill_action::send{a.claim.owner(), have, have + loaded});
  }
  // The last one may end the attempt.
  for (auto& [outcome, took] : std::exchange(a.held, {})) use(a, std::move(outcome), took);
}

/// From behind what was here, once neither a pass nor a transfer touches its blocks.
void prefill_core::compute_again(attempt& a, time_point now) {
  queue_.cancel(request_id{a.claim.owner()});
  if (a.in_steps > 0 || a.claim.loading()) return;
  a.held.clear();
  actions_.emplace_back(prefill_action::choose_again{a.claim.owner()});
  a.early = false;
  a.again = false;
  if (a.from_disk) return pin_again(a, 0, now);
  a.computed = tokens_of(a.claim.have());
  enqueue(a, now);
}

}  // namespace mooncaf
