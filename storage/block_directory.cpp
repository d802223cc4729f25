#include "storage/block_directory.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

const block_directory::entry* block_directory::find(const block_key& key) const noexcept {
  const std::uint32_t at = index_.find(key);
  return at == flat_index::none ? nullptr : &entries_[at];
}

block_directory::entry& block_directory::obtain(const block_name& name) {
  if (const std::uint32_t at = index_.find(name.key); at != flat_index::none) return entries_[at];
  std::uint32_t at;
  if (unused_.empty()) {
    at = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    at = unused_.back();
    unused_.pop_back();
  }
  entries_[at] = entry{name};
  index_.insert(name.key, at);
  return entries_[at];
}

void block_directory::release_if_gone(std::uint32_t at) {
  if (entries_[at].in_dram() || entries_[at].on_ssd) return;
  index_.erase(entries_[at].name.key);
  unused_.push_back(at);
}

void block_directory::add_dram(const block_name& name, std::uint64_t checksum, std::uint32_t slot) {
  entry& e = obtain(name);
  if (e.in_dram()) return;
  e.slot = slot;
  e.checksum = checksum;
  announce(e.on_ssd ? block_event::kind::moved : block_event::kind::stored, storage_tier::dram, name);
}

void block_directory::drop_dram(const block_key& key) {
  const std::uint32_t at = index_.find(key);
  if (at == flat_index::none || !entries_[at].in_dram()) return;
  entry& e = entries_[at];
  e.slot = no_slot;
  if (e.on_ssd) {
    announce(block_event::kind::moved, storage_tier::ssd, e.name);
  } else {
    announce_loss(storage_tier::dram, e.name);
  }
  release_if_gone(at);
}

void block_directory::add_ssd(const block_name& name, std::uint64_t checksum) {
  entry& e = obtain(name);
  if (e.on_ssd) return;
  e.on_ssd = true;
  e.checksum = checksum;
  ++ssd_count_;
  if (!e.in_dram()) announce(block_event::kind::stored, storage_tier::ssd, name);
}

void block_directory::drop_ssd(const block_key& key) {
  const std::uint32_t at = index_.find(key);
  if (at == flat_index::none || !entries_[at].on_ssd) return;
  entry& e = entries_[at];
  e.on_ssd = false;
  --ssd_count_;
  if (!e.in_dram()) announce_loss(storage_tier::ssd, e.name);
  release_if_gone(at);
}

void block_directory::on_device(const block_name& name, bool held) {
  const bool changed = held ? on_device_.try_emplace(name.key, name).second : on_device_.erase(name.key) == 1;
  if (!changed || find(name.key) != nullptr) return;
  announce(held ? block_event::kind::stored : block_event::kind::removed, storage_tier::device, name);
}

/// It is neither in DRAM nor on SSD any more.
void block_directory::announce_loss(storage_tier last, const block_name& name) {
  if (on_device_.contains(name.key)) announce(block_event::kind::moved, storage_tier::device, name);
  else announce(block_event::kind::removed, last, name);
}

void block_directory::announce(block_event::kind what, storage_tier tier, const block_name& name) {
  // Half a story is worth less than none: the gap sends the reader to the snapshot, which has it all.
  if (pending_.size() >= max_pending_) pending_.clear();
  pending_.push_back({++sequence_, what, tier, name});
}

std::vector<block_event> block_directory::drain_events() { return std::exchange(pending_, {}); }

block_snapshot block_directory::snapshot() const {
  block_snapshot all{sequence_, {}};
  all.blocks.reserve(size() + on_device_.size());
  for_each([&](const entry& e) {
    const auto tier = e.in_dram() ? storage_tier::dram : storage_tier::ssd;
    all.blocks.push_back({sequence_, block_event::kind::stored, tier, e.name});
  });
  for (const auto& [key, name] : on_device_)
    if (find(key) == nullptr)
      all.blocks.push_back({sequence_, block_event::kind::stored, storage_tier::device, name});
  std::stable_sort(all.blocks.begin(), all.blocks.end(),
                   [](const auto& a, const auto& b) { return a.name.depth < b.name.depth; });
  return all;
}

}  // namespace mooncaf
