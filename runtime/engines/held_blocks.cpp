#include "runtime/engines/held_blocks.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr std::size_t at_once = 512;  ///< keeps a CAF message below 64 KiB, as shards do

}  // namespace

void held_blocks::add(const block_name& name) {
  auto& e = held_[name.key];
  if (e.times++ > 0) return;
  e.name = name;
  changes_.push_back({name, block_change::stored, storage_tier::dram});
}

void held_blocks::drop(const block_key& key) {
  const auto i = held_.find(key);
  if (--i->second.times > 0) return;
  changes_.push_back({i->second.name, block_change::removed, storage_tier::dram});
  held_.erase(i);
}

void held_blocks::clear() {
  for (const auto& [key, e] : held_) changes_.push_back({e.name, block_change::removed, storage_tier::dram});
  held_.clear();
}

std::uint32_t held_blocks::leading(std::span<const block_key> keys) const {
  const auto end = std::ranges::find_if(keys, [&](const block_key& key) { return !held_.contains(key); });
  return static_cast<std::uint32_t>(end - keys.begin());
}

std::vector<block_event_batch> held_blocks::take_changes(node_id self) {
  std::vector<block_event_batch> out;
  for (std::size_t at = 0; at < changes_.size(); at += at_once) {
    const auto count = std::min(at_once, changes_.size() - at);
    const auto first = changes_.begin() + static_cast<std::ptrdiff_t>(at);
    out.push_back({self, announced_ + at + 1, false, 0, {first, first + static_cast<std::ptrdiff_t>(count)}});
  }
  announced_ += std::exchange(changes_, {}).size();
  return out;
}

std::vector<block_event_batch> held_blocks::snapshot(node_id self) {
  announced_ += std::exchange(changes_, {}).size();
  std::vector<block_event_batch> out{{self, announced_, true, 0, {}}};
  for (const auto& [key, e] : held_) {
    if (out.back().events.size() == at_once)
      out.push_back({self, announced_, true, static_cast<std::uint32_t>(out.size()), {}});
    out.back().events.push_back({e.name, block_change::stored, storage_tier::dram});
  }
  return out;
}

}  // namespace mooncaf
