#include "runtime/sim/node_memories.hpp"

#include <algorithm>

namespace mooncaf::sim {

node_cache_options cache_options_of(const world& w) {
  const auto& o = w.options;
  const auto blocks = [&](std::uint64_t tokens) {
    return o.local_cache ? tokens * w.layout.pipeline() / o.hardware.block_tokens : 0;
  };
  node_cache_options c;
  c.dram = c.ssd = {o.eviction, o.leaf_first};
  c.ssd.copy_age = o.copy_age;
  c.device_gives_back = o.device_write == write_policy::write_back;
  c.dram_blocks = blocks(o.hardware.dram_tokens);
  c.ssd_blocks = blocks(o.hardware.ssd_tokens);
  c.write = o.write;
  c.selective_hits = o.selective_hits;
  return c;
}

node_memories::node_memories(world& w) : w_(w) {
  const auto options = cache_options_of(w);
  caches_.reserve(w.layout.prefill());
  for (std::uint32_t i = 0; i < w.layout.prefill(); ++i)
    caches_.emplace_back(options, w.conductor, w.layout.node_of(i));
}

void node_memories::attach(std::uint32_t instance, device_tier& device) {
  if (!device.keeps()) return;
  devices_.resize(caches_.size());
  devices_[instance] = &device;
}

std::uint32_t node_memories::on_device(const request_state_record& r) const {
  const auto* const device = device_of(r.prefill);
  return device == nullptr ? 0 : device->match(w_.reusable_keys(r));
}

std::uint32_t node_memories::adopt_from_device(const request_state_record& r) {
  auto* const device = device_of(r.prefill);
  if (device == nullptr) return r.fetched_to;
  device->used(std::span{r.keys}.subspan(std::min<std::size_t>(r.fetched_to, r.keys.size())),
               static_cast<std::uint64_t>(w_.time.now()));
  const auto held = device->adopt(r.id.value, w_.reusable_keys(r), r.fetched_to);
  tend_device(r.prefill);
  return std::max(r.fetched_to, held);
}

bool node_memories::stays_on_device(const request_state_record& r) const {
  const auto* const device = device_of(r.prefill);
  return device != nullptr && device->stays(r.id.value);
}

void node_memories::let_go(const request_state_record& r) {
  if (auto* const device = device_of(r.prefill)) device->let_go(r.id.value);
}

void node_memories::tend_device(std::uint32_t instance) {
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

ticks node_memories::bring_down(std::uint32_t instance, std::span<const block_key> keys) {
  auto* const device = device_of(instance);
  if (device == nullptr) return 0;
  const auto& cache = caches_[instance];
  const auto before = cache.match(keys).blocks;
  device->want(keys, before);
  tend_device(instance);
  const auto came = std::max(cache.match(keys).blocks, before) - before;
  return from_sec(static_cast<double>(came * w_.options.hardware.block_bytes()) /
                  w_.options.hardware.device_link_bytes_per_s);
}

void node_memories::sum_up() {
  for (const auto& c : caches_) {
    w_.out.bytes_ssd_written +=
        static_cast<double>(c.ssd_written()) * static_cast<double>(w_.options.hardware.block_bytes());
    w_.out.blocks_evicted += c.evicted();
  }
}

}  // namespace mooncaf::sim
