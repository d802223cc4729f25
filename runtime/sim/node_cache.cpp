#include "runtime/sim/node_cache.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf::sim {

namespace {

/// Prefetches the blocks of the next victims: a cold prompt gives way from its last block to its first, so
/// the next one is known long before its turn.
class lookahead {
 public:
  void start(const prefix_tree::tier& blocks, prefix_tree::handle victim) {
    far_ = near_ = victim;
    if (victim == prefix_tree::none) return;
    blocks.prefetch(victim);
    for (int i = 0; i < far_ahead; ++i) climb_far(blocks);
    blocks.tree().prefetch_erase(victim);
    for (int i = 0; i < near_ahead; ++i) climb_near(blocks);
  }
  void step(const prefix_tree::tier& blocks) {
    climb_far(blocks);
    climb_near(blocks);
  }

 private:
  static constexpr int far_ahead = 10, near_ahead = 4;
  void climb_far(const prefix_tree::tier& blocks) {
    if (far_ != prefix_tree::none) far_ = blocks.tree().parent(far_);
    if (far_ != prefix_tree::none) blocks.prefetch(far_);
  }
  void climb_near(const prefix_tree::tier& blocks) {
    if (near_ != prefix_tree::none) near_ = blocks.tree().parent(near_);
    if (near_ != prefix_tree::none) blocks.tree().prefetch_erase(near_);
  }
  prefix_tree::handle far_ = prefix_tree::none, near_ = prefix_tree::none;
};

}  // namespace

node_cache::node_cache(const node_cache_options& options, conductor_core& conductor, node_id node)
    : options_(options),
      conductor_(&conductor),
      node_(node),
      tree_(std::make_shared<prefix_tree>()),
      dram_(tree_->open(storage_tier::dram, options.dram)),
      ssd_(tree_->in(storage_tier::ssd)) {
  tree_->tell({storage_tier::device}, ~std::size_t{0});
  if (options_.ssd_blocks == 0) return;
  // Blocks that come again when they leave memory or the device leave the disk first.
  tier_set above;
  if (writes_on_eviction(options_.write))
    above = tier_set{storage_tier::dram}.with(storage_tier::device, options_.device_gives_back);
  tree_->open(storage_tier::ssd, options.ssd, above);
}

void node_cache::clear() {
  dram_.clear();
  ssd_.clear();
  tree_->drain_events();
  survey_ = {};
}

cache_hit node_cache::match(std::span<const block_key> keys) const noexcept {
  for (const auto& key : keys) tree_->prefetch(key);
  cache_hit hit;
  for (const auto& key : keys) {
    const auto h = tree_->find(key);
    if (h == prefix_tree::none) break;
    const bool here = dram_.here(h);
    if (!here && !ssd_.here(h)) break;
    // A block in memory behind one on disk is of no use without that one.
    hit.from_ssd += !here || hit.from_ssd > 0;
    ++hit.blocks;
  }
  return hit;
}

cache_hit node_cache::pin(std::span<const block_key> keys, std::uint32_t most, std::uint64_t now,
                          pins& held) {
  const auto asked = keys.first(std::min<std::size_t>(most, keys.size()));
  for (const auto& k : asked) tree_->prefetch(k);
  for (const auto& k : asked) tree_->prefetch_block(k);
  cache_hit hit;
  for (; hit.blocks < asked.size(); ++hit.blocks) {
    const auto i = hit.blocks;
    const auto h = tree_->find(keys[i]);
    if (h == prefix_tree::none) break;
    if (dram_.here(h)) {
      used(h, now);
    } else {
      if (!ssd_.here(h)) break;
      ssd_.pin(h);
      const auto room = make_room(1);
      ssd_.unpin(h);
      if (room == 0) break;
      tree_->touch(h, now);
      dram_.insert(keys[i], parent_of(keys, i), i, now);
      conductor_->blocks_held(node_, {&keys[i], 1}, storage_tier::dram);
      ++hit.from_ssd;
    }
    hold(h, held);
  }
  return hit;
}

/// Pins the next block of a prompt, which keeps the earlier ones, too, if only leaves are given up.
void node_cache::hold(prefix_tree::handle h, pins& held) {
  dram_.pin(h);
  if (options_.dram.leaf_first && !held.empty() && held.back() == tree_->parent(h)) {
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
    if (const auto h = dram_.find(keys[i]); h != prefix_tree::none) used(h, now);
  }
}

void node_cache::copy(std::span<const block_name> blocks, std::uint64_t now) {
  if (blocks.empty()) return;
  if (const auto& first = blocks.front(); first.depth > 0) {
    // It was here when the copy was planned; without it the copy is of no use.
    const auto parent = dram_.find(first.parent);
    if (parent == prefix_tree::none) return;
    hold(parent, chain_);
  }
  for (const auto& b : blocks) {
    auto h = dram_.find(b.key);
    if (h == prefix_tree::none) {
      if (make_room(1) == 0) break;
      h = dram_.insert(b.key, b.depth == 0 ? b.key : b.parent, b.depth, now);
      if (options_.ssd_blocks > 0 && writes_on_commit(options_.write)) save(h);
      conductor_->blocks_held(node_, {&b.key, 1}, storage_tier::dram);
    }
    hold(h, chain_);  // must not give way to the rest of its own copy
  }
  unpin(chain_);
}

void node_cache::prepare(std::span<const block_key> keys, std::uint32_t from) const noexcept {
  const auto fresh = keys.subspan(std::min<std::size_t>(from, keys.size()));
  for (const auto& k : fresh) tree_->prefetch(k);
  if (dram_.size() + fresh.size() > options_.dram_blocks) lookahead{}.start(dram_, dram_.victim());
}

/// The last of them keeps the others, if only leaves are given up.
void node_cache::hold_run(std::span<const block_key> run, pins& held) {
  if (options_.dram.leaf_first && !run.empty()) run = run.last(1);
  for (const auto& key : run) hold(dram_.find(key), held);
}

std::uint32_t node_cache::insert(std::span<const block_key> keys, std::uint32_t from, std::uint64_t now,
                                 pins* held) {
  ask_for_copies();
  auto i = from;
  for (; i < keys.size(); ++i) {
    const auto h = dram_.find(keys[i]);
    if (h == prefix_tree::none) break;
    used(h, now);
    hold(h, chain_);  // it must not give way to the rest of its own prompt
  }
  const auto room = make_room(keys.size() - i);
  unpin(chain_);
  dram_.insert(keys.first(i + room), i, now);
  if (options_.ssd_blocks > 0 && writes_on_commit(options_.write)) {
    for (auto k = i; k < i + room; ++k) save(dram_.find(keys[k]));
  }
  conductor_->blocks_held(node_, keys.subspan(i, room), storage_tier::dram);
  const auto there = static_cast<std::uint32_t>(i + room);
  if (held != nullptr) hold_run(keys.subspan(from, there - from), *held);
  return there;
}

void node_cache::used(prefix_tree::handle h, std::uint64_t now) {
  tree_->touch(h, now);
  if (options_.ssd_blocks > 0 && !ssd_.here(h) &&
      writes_on_use(options_.write, tree_->uses(h), options_.selective_hits))
    save(h);
}

/// Room for `wanted` blocks in DRAM. @returns for how many there is: less if too much is in use.
std::size_t node_cache::make_room(std::size_t wanted) {
  const auto free = [&] {
    return dram_.size() < options_.dram_blocks ? options_.dram_blocks - dram_.size() : 0;
  };
  lookahead ahead;
  auto expected = prefix_tree::none;
  while (free() < wanted) {
    const auto victim = dram_.victim();
    if (victim == prefix_tree::none) break;
    if (victim != expected) ahead.start(dram_, victim);
    expected = tree_->parent(victim);
    ahead.step(dram_);
    if (options_.ssd_blocks > 0 && writes_on_eviction(options_.write)) save(victim);
    const auto key = tree_->key(victim);
    const auto left = tree_->shown(victim).with(storage_tier::dram, false);
    dram_.erase(victim);
    if (left.has(storage_tier::ssd)) {
      conductor_->blocks_held(node_, {&key, 1}, storage_tier::ssd);
    } else if (left.empty()) {
      gone_.push_back(key);
      ++evicted_;
    }
  }
  conductor_->blocks_gone(node_, gone_);
  gone_.clear();
  return std::min<std::size_t>(free(), wanted);
}

void node_cache::tell_of_device() {
  for (const auto& e : tree_->drain_events()) {
    const auto h = tree_->find(e.name.key);
    const auto where = h == prefix_tree::none ? tier_set{} : tree_->shown(h);
    if (where.meets({storage_tier::dram, storage_tier::ssd})) continue;  // the conductor knows
    if (!where.empty()) {
      conductor_->blocks_held(node_, {&e.name.key, 1}, storage_tier::dram);
    } else if (e.what == block_change::removed) {
      conductor_->blocks_gone(node_, {&e.name.key, 1});
      ++evicted_;
    }
  }
}

/// As a shard does, a batch at a time.
void node_cache::ask_for_copies() {
  if (options_.ssd_blocks == 0) return;
  if (ssd_.size() < options_.ssd_blocks - options_.ssd_blocks / 16) return;
  const auto keys = survey_.next(ssd_, ssd_evicted_, time_point{});
  if (!keys.empty()) copy_survey::answer(ssd_, keys, conductor_->kept_elsewhere(node_, keys));
}

void node_cache::save(prefix_tree::handle h) {
  if (ssd_.here(h)) return;
  while (ssd_.size() >= options_.ssd_blocks) {
    const auto victim = ssd_.victim();
    if (victim == prefix_tree::none) return;
    const auto gone = tree_->key(victim);
    const auto left = tree_->shown(victim).with(storage_tier::ssd, false);
    ssd_.erase(victim);
    ++ssd_evicted_;
    if (left.has(storage_tier::dram)) continue;
    if (!left.empty()) {
      conductor_->blocks_held(node_, {&gone, 1}, storage_tier::dram);
    } else {
      conductor_->blocks_gone(node_, {&gone, 1});
      ++evicted_;
    }
  }
  ssd_.insert(tree_->key(h), tree_->parent_key(h), tree_->depth(h), 0);
  ++ssd_written_;
}

}  // namespace mooncaf::sim
