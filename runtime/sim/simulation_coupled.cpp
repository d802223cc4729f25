#include <algorithm>

#include "runtime/sim/simulation.hpp"

// The coupled baseline: instances that do both.

namespace mooncaf::sim {

void simulation::enter_coupled(std::uint32_t slot) {
  auto& r = requests_[slot];
  auto& c = coupled_[r.prefill];
  decode_entry entry;
  entry.id = r.id;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.context_tokens = r.prompt_tokens;
  entry.max_tokens = max_tokens_of(r);
  if (!c.push(entry, r.output_tokens)) {
    refuse(r, {{ec::out_of_space, "longer than an instance's memory"}, {}, reject_stage::at_decode});
    caches_[r.prefill].unpin(r.pins);
    if (auto* const device = device_of(r.prefill)) device->let_go(r.id.value);
    conductor_.failed(r.id, clock());
    return close(slot);
  }
  if (const auto turn = c.wake(now_))
    events_.push(turn->at, event_kind::coupled_turn, r.prefill, turn->stamp);
}

/// Null: nothing stays in a memory of its own.
device_tier* simulation::device_of(std::uint32_t instance) {
  if (!is_coupled() || !coupled_[instance].tier()) return nullptr;
  auto& device = *coupled_[instance].tier();
  return device.keeps() ? &device : nullptr;
}

bool simulation::stays_on_device(const request_state_record& r) {
  const auto* const device = device_of(r.prefill);
  return device != nullptr && device->stays(r.id.value);
}

/// @returns leading blocks of its prompt that need not be computed, with those that the device alone has.
std::uint32_t simulation::adopt_from_device(const request_state_record& r) {
  auto* const device = device_of(r.prefill);
  if (device == nullptr) return r.fetched_to;
  device->used(std::span{r.keys}.subspan(std::min<std::size_t>(r.fetched_to, r.keys.size())),
               static_cast<std::uint64_t>(now_));
  const auto held = device->adopt(r.id.value, reusable_keys(r), r.fetched_to);
  tend_device(r.prefill);
  return std::max(r.fetched_to, held);
}

/// What a device writer does, at once: the node's memory gets what is to leave the device or is used often.
void simulation::tend_device(std::uint32_t instance) {
  auto* const device = device_of(instance);
  if (device == nullptr) return;
  auto& cache = caches_[instance];
  std::vector<block_key> keys;
  while (const auto chain = device->next_write()) {
    keys.clear();
    for (const auto& b : chain->chain) keys.push_back(b.key);
    const auto before = cache.match(keys).blocks;
    if (before < keys.size()) cache.insert(keys, 0, cache.tree()->last_used(cache.tree()->find(keys.back())));
    const auto after = std::max(before, cache.match(keys).blocks);
    device->came_down(*chain, before, after);
    if (after == before && before < keys.size()) break;  // memory has no room
  }
  cache.tell_of_device();
}

/// Brings to memory what another node is to get and the device alone has. @returns how long that takes.
ticks simulation::bring_down(std::uint32_t instance, std::span<const block_key> keys) {
  auto* const device = device_of(instance);
  if (device == nullptr) return 0;
  const auto& cache = caches_[instance];
  const auto before = cache.match(keys).blocks;
  device->want(keys, before);
  tend_device(instance);
  const auto came = std::max(cache.match(keys).blocks, before) - before;
  return from_sec(static_cast<double>(came * options_.hardware.block_bytes()) /
                  options_.hardware.device_link_bytes_per_s);
}

void simulation::coupled_turn(std::uint32_t instance, std::uint32_t stamp) {
  auto& c = coupled_[instance];
  if (!c.is_current(stamp)) return;
  news_.first_tokens.clear();
  news_.finished.clear();
  c.turn(now_, requests_, out_.gap, news_);
  for (const auto slot : news_.finished) {
    const auto& r = requests_[slot];
    out_.output_tokens += r.decode_tokens;
    finish(slot, c.tbt(r, options_.tbt, gaps_before(slot), options_.tbt_is_fine_s()));
  }
  for (const auto slot : news_.first_tokens) {
    if (requests_[slot].output_tokens <= 1) c.leave(requests_[slot]);
    first_token(slot);
  }
  tend_device(instance);
  if (const auto next = c.next(now_, conditions_[instance].slower, random_, requests_)) {
    events_.push(next->at, event_kind::coupled_turn, instance, next->stamp);
  }
  if (!on_the_way_[instance].empty() && idle(instance)) stop_loading(instance);
  report(static_cast<std::uint32_t>(decode_id(instance).value), c.load());
}

}  // namespace mooncaf::sim
