#include "runtime/sim/node_cache.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf::sim {

namespace {

/// Brings near what the next victims need: a cold prompt gives way from its last block to its first, and what
/// comes next is known long before its turn.
class lookahead {
 public:
  void start(const eviction_index& blocks, eviction_index::handle victim) {
    far_ = near_ = victim;
    if (victim == eviction_index::none) return;
    blocks.prefetch(victim);
    for (int i = 0; i < far_ahead; ++i) climb_far(blocks);
    blocks.prefetch_erase(victim);
    for (int i = 0; i < near_ahead; ++i) climb_near(blocks);
  }
  void step(const eviction_index& blocks) {
    climb_far(blocks);
    climb_near(blocks);
  }

 private:
  static constexpr int far_ahead = 10, near_ahead = 4;
  void climb_far(const eviction_index& blocks) {
    if (far_ != eviction_index::none) far_ = blocks.parent(far_);
    if (far_ != eviction_index::none) blocks.prefetch(far_);
  }
  void climb_near(const eviction_index& blocks) {
    if (near_ != eviction_index::none) near_ = blocks.parent(near_);
    if (near_ != eviction_index::none) blocks.prefetch_erase(near_);
  }
  eviction_index::handle far_ = eviction_index::none, near_ = eviction_index::none;
};

}  // namespace

cache_hit node_cache::match(std::span<const block_key> keys) const noexcept {
  for (const auto& key : keys) dram_.prefetch(key);
  cache_hit hit;
  for (const auto& key : keys) {
    const bool here = dram_.find(key) != eviction_index::none;
    if (!here && ssd_.find(key) == eviction_index::none) break;
    // What lies in memory behind a block on disk is of no use without that.
    hit.from_ssd += !here || hit.from_ssd > 0;
    ++hit.blocks;
  }
  return hit;
}

cache_hit node_cache::pin(std::span<const block_key> keys, std::uint32_t most, std::uint64_t now,
                          pins& held) {
  latest_ = now;
  const auto asked = keys.first(std::min<std::size_t>(most, keys.size()));
  for (const auto& k : asked) dram_.prefetch(k);
  for (const auto& k : asked) dram_.prefetch_block(k);
  cache_hit hit;
  for (; hit.blocks < asked.size(); ++hit.blocks) {
    const auto i = hit.blocks;
    auto h = dram_.find(keys[i]);
    if (h == eviction_index::none) {
      if (options_.ssd_blocks == 0) break;
      const auto on_disk = ssd_.find(keys[i]);
      if (on_disk == eviction_index::none || make_room(1) == 0) break;
      ssd_.touch(on_disk, now);
      if (copies_matter()) ssd_.set_copy(on_disk, copy_kind::comes_again);
      h = dram_.insert(keys[i], parent_of(keys, i), i, now);
      conductor_->block_held(node_, keys[i], holder_tier::dram);
      ++hit.from_ssd;
    } else {
      used(h, keys, i, now);
    }
    hold(h, held);
  }
  return hit;
}

/// Pins the next block of a prompt, which keeps those before it, too, if only leaves are given up.
void node_cache::hold(eviction_index::handle h, pins& held) {
  dram_.pin(h);
  if (options_.dram.leaf_first && !held.empty() && held.back() == dram_.parent(h)) {
    dram_.unpin(std::exchange(held.back(), h));
  } else {
    held.push_back(h);
  }
}

void node_cache::unpin(pins& held) {
  for (const auto h : held) dram_.prefetch(h);
  // Leaves first: a parent that still has a pinned child needs no place among the victims yet.
  for (auto i = held.rbegin(); i != held.rend(); ++i) dram_.unpin(*i);
  held.clear();
}

void node_cache::sent(std::span<const block_key> keys, std::uint32_t from, std::uint32_t to,
                      std::uint64_t now) {
  for (auto i = from; i < to && i < keys.size(); ++i) {
    if (const auto h = dram_.find(keys[i]); h != eviction_index::none) used(h, keys, i, now);
  }
}

void node_cache::copy(std::span<const hot_block> blocks, std::uint64_t now) {
  latest_ = now;
  if (blocks.empty()) return;
  if (const auto& first = blocks.front(); first.depth > 0) {
    // It was here when the copy was planned; without it the copy is of no use.
    const auto parent = dram_.find(first.parent);
    if (parent == eviction_index::none) return;
    hold(parent, chain_);
  }
  for (const auto& b : blocks) {
    auto h = dram_.find(b.key);
    if (h == eviction_index::none) {
      if (make_room(1) == 0) break;
      h = dram_.insert(b.key, b.depth == 0 ? b.key : b.parent, b.depth, now);
      set_copy(b.key, true);
      if (options_.ssd_blocks > 0 && writes_on_commit(options_.write))
        save(b.key, b.depth == 0 ? b.key : b.parent, b.depth, now);
      conductor_->block_held(node_, b.key, holder_tier::dram);
    }
    hold(h, chain_);  // must not give way to the rest of its own copy
  }
  unpin(chain_);
}

void node_cache::prepare(std::span<const block_key> keys, std::uint32_t from) const noexcept {
  const auto fresh = keys.subspan(std::min<std::size_t>(from, keys.size()));
  for (const auto& k : fresh) dram_.prefetch(k);
  if (dram_.size() + fresh.size() > options_.dram_blocks) lookahead{}.start(dram_, dram_.victim());
}

void node_cache::insert(std::span<const block_key> keys, std::uint32_t from, std::uint64_t now) {
  latest_ = now;
  ask_for_copies();
  auto i = from;
  for (; i < keys.size(); ++i) {
    const auto h = dram_.find(keys[i]);
    if (h == eviction_index::none) break;
    used(h, keys, i, now);
    hold(h, chain_);  // what is here must not give way to the rest of its own prompt
  }
  const auto room = make_room(keys.size() - i);
  unpin(chain_);
  dram_.insert(keys.first(i + room), i, now);
  for (auto k = i; copies_matter() && k < i + room; ++k) set_copy(keys[k], true);
  if (options_.ssd_blocks > 0 && writes_on_commit(options_.write)) {
    for (auto k = i; k < i + room; ++k) save(keys[k], parent_of(keys, k), k, now);
  }
  conductor_->blocks_held(node_, keys.subspan(i, room), holder_tier::dram);
}

void node_cache::used(eviction_index::handle h, std::span<const block_key> keys, std::uint32_t i,
                      std::uint64_t now) {
  dram_.touch(h, now);
  if (options_.ssd_blocks == 0) return;
  if (const auto d = ssd_.find(keys[i]); d != eviction_index::none) {
    ssd_.touch(d, now);
  } else if (writes_on_use(options_.write, dram_.frequency(h), options_.selective_hits)) {
    save(keys[i], parent_of(keys, i), i, now);
  }
}

/// Room for `wanted` blocks in DRAM. @returns for how many there is: less if too much is in use.
std::size_t node_cache::make_room(std::size_t wanted) {
  const auto free = [&] {
    return dram_.size() < options_.dram_blocks ? options_.dram_blocks - dram_.size() : 0;
  };
  lookahead ahead;
  auto expected = eviction_index::none;
  while (free() < wanted) {
    const auto victim = dram_.victim();
    if (victim == eviction_index::none) break;
    if (victim != expected) ahead.start(dram_, victim);
    expected = dram_.parent(victim);
    ahead.step(dram_);
    const auto key = dram_.key(victim);
    if (options_.ssd_blocks > 0 && writes_on_eviction(options_.write)) {
      save(key, dram_.parent_key(victim), dram_.depth(victim), dram_.last_used(victim));
      set_copy(key, false);
    }
    dram_.erase(victim);
    if (options_.ssd_blocks > 0 && ssd_.find(key) != eviction_index::none) {
      conductor_->block_held(node_, key, holder_tier::ssd);
    } else if (!on_device_.contains(key)) {
      gone_.push_back(key);
      ++evicted_;
    }
  }
  conductor_->blocks_gone(node_, gone_);
  gone_.clear();
  return std::min<std::size_t>(free(), wanted);
}

void node_cache::on_device(const block_key& key, bool held) {
  if (held) on_device_.insert(key);
  else on_device_.erase(key);
  set_copy(key, dram_.find(key) != eviction_index::none);
  if (dram_.find(key) != eviction_index::none || ssd_.find(key) != eviction_index::none) return;
  if (held) {
    conductor_->block_held(node_, key, holder_tier::dram);
  } else {
    conductor_->block_gone(node_, key);
    ++evicted_;
  }
}

void node_cache::set_copy(const block_key& key, bool in_memory) {
  if (!copies_matter()) return;
  const auto h = ssd_.find(key);
  if (h == eviction_index::none) return;
  if (in_memory || (options_.device_gives_back && on_device_.contains(key)))
    ssd_.set_copy(h, copy_kind::comes_again);
  else if (ssd_.copy(h) == copy_kind::comes_again) ssd_.set_copy(h, copy_kind::alone);
}

/// As a shard does, a batch at a time.
void node_cache::ask_for_copies() {
  if (ssd_.size() < options_.ssd_blocks - options_.ssd_blocks / 16) return;
  const auto keys = survey_.next(ssd_, ssd_evicted_, time_point{});
  if (!keys.empty()) copy_survey::answer(ssd_, keys, conductor_->kept_elsewhere(node_, keys));
}

void node_cache::save(const block_key& key, const block_key& parent, std::uint32_t depth, std::uint64_t now) {
  if (ssd_.find(key) != eviction_index::none) return;
  while (ssd_.size() >= options_.ssd_blocks) {
    const auto victim = ssd_.victim();
    if (victim == eviction_index::none) return;
    const auto gone = ssd_.key(victim);
    ssd_.erase(victim);
    ++ssd_evicted_;
    if (dram_.find(gone) != eviction_index::none) continue;
    if (on_device_.contains(gone)) {
      if (options_.device_gives_back) device_alone_.push_back(gone);
      conductor_->block_held(node_, gone, holder_tier::dram);
    } else {
      conductor_->block_gone(node_, gone);
      ++evicted_;
    }
  }
  ssd_.insert(key, parent, depth, now);
  ++ssd_written_;
}

}  // namespace mooncaf::sim
