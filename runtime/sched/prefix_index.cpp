#include "runtime/sched/prefix_index.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr std::uint32_t first_capacity = 16;
constexpr std::size_t prefetch_ahead = 16;  // loads that one core keeps in flight
constexpr std::size_t crowd_size = 16;      // fewer are named one by one

}  // namespace

prefix_index::prefix_index() : segments_(segments) {
  for (auto& s : segments_) s = {std::make_unique<slot[]>(first_capacity), first_capacity, 0};
}

// ---- slots
// ----------------------------------------------------------------------------------------------------------

const prefix_index::slot* prefix_index::find(std::uint64_t tag) const noexcept {
  const auto& s = segment_of(tag);
  for (auto at = home(s, tag);;) {
    const auto& e = s.slots[at];
    if (!e.used()) return nullptr;
    if (e.tag == tag) return &e;
    if (++at == s.size) at = 0;
  }
}

prefix_index::slot& prefix_index::claim(std::uint64_t tag) {
  auto& s = segments_[tag >> 56];
  auto at = home(s, tag);
  while (s.slots[at].used()) {
    if (s.slots[at].tag == tag) return s.slots[at];
    if (++at == s.size) at = 0;
  }
  if ((s.count + 1) * 5 > s.size * 4) {
    grow(s);
    if (&s == &segments_[sweep_segment_]) sweep_slot_ = 0;
    return claim(tag);
  }
  ++s.count;
  ++count_;
  s.slots[at].tag = tag;
  return s.slots[at];
}

void prefix_index::grow(segment& s) {
  // By half: a segment is between 53 and 80 % full, and a key takes 20 to 30 bytes.
  const auto old_size = std::exchange(s.size, s.size * 3 / 2);
  const auto old = std::exchange(s.slots, std::make_unique<slot[]>(s.size));
  for (std::uint32_t i = 0; i < old_size; ++i) {
    const auto& e = old[i];
    if (!e.used()) continue;
    auto at = home(s, e.tag);
    while (s.slots[at].used()) {
      if (++at == s.size) at = 0;
    }
    s.slots[at] = e;
  }
}

void prefix_index::erase_at(segment& s, std::size_t at) {
  auto lowest = at;
  std::size_t gap = 0;  // from the hole to the slot that is looked at
  for (auto next = at;;) {
    if (++next == s.size) next = 0;
    ++gap;
    const auto& e = s.slots[next];
    if (!e.used()) break;
    // Move back an entry that may live in the hole: its home does not lie between the hole and itself.
    const auto at_home = home(s, e.tag);
    if ((next >= at_home ? next : next + s.size) - at_home < gap) continue;
    s.slots[at] = e;
    at = next;
    gap = 0;
    lowest = std::min(lowest, at);
  }
  s.slots[at] = slot{};
  --s.count;
  --count_;
  // Slots moved to where the sweep has been already.
  if (&s == &segments_[sweep_segment_]) sweep_slot_ = std::min(sweep_slot_, lowest);
}

// ---- holders of a slot
// ----------------------------------------------------------------------------------------------

prefix_index::holder prefix_index::holder_at(const slot& s, node_index node) const noexcept {
  if (!s.is_spilled()) {
    for (const auto h : s.holders) {
      if (h != 0 && node_of(h) == node) return h;
    }
    return 0;
  }
  const auto& set = sets_[s.set()];
  if (set.is_bitmap) {
    if (!set.held.test(node)) return 0;
    return pack(node, set.dram.test(node) ? storage_tier::dram : storage_tier::ssd);
  }
  const auto i = std::ranges::lower_bound(set.list, node, {}, node_of);
  return i != set.list.end() && node_of(*i) == node ? *i : holder{0};
}

std::span<const prefix_index::holder> prefix_index::listed(const slot& s) const noexcept {
  if (s.is_spilled()) return sets_[s.set()].list;
  std::size_t n = 0;
  while (n < inline_holders && s.holders[n] != 0) ++n;
  return {s.holders, n};
}

bool prefix_index::add_holder(slot& s, node_index node, storage_tier tier) {
  const auto h = pack(node, tier);
  if (s.is_spilled()) return insert_spilled(sets_[s.set()], h);
  for (auto& own : s.holders) {
    if (own == 0 || node_of(own) == node) return std::exchange(own, h) == 0;
  }
  spill(s, h);
  return true;
}

void prefix_index::spill(slot& s, holder fifth) {
  if (free_sets_.empty()) {
    free_sets_.push_back(static_cast<std::uint32_t>(sets_.size()));
    sets_.emplace_back();
  }
  const auto number = free_sets_.back();
  free_sets_.pop_back();
  auto& set = sets_[number];
  set.list.assign(std::begin(s.holders), std::end(s.holders));
  set.list.push_back(fifth);
  std::ranges::sort(set.list);
  set.count = static_cast<std::uint32_t>(set.list.size());
  s.holders[0] = spilled;
  s.holders[1] = static_cast<holder>(number & 0xFFFF);
  s.holders[2] = static_cast<holder>(number >> 16);
  s.holders[3] = 0;
}

bool prefix_index::insert_spilled(holder_set& set, holder h) {
  const auto node = node_of(h);
  if (!set.is_bitmap) {
    const auto i = std::ranges::lower_bound(set.list, node, {}, node_of);
    if (i != set.list.end() && node_of(*i) == node) {
      *i = h;
      return false;
    }
    set.list.insert(i, h);
    if (++set.count <= list_holders) return true;
    for (const auto one : set.list) {
      set.held.insert(node_of(one));
      if (in_dram(one)) set.dram.insert(node_of(one));
    }
    set.list = {};
    set.is_bitmap = true;
    return true;
  }
  const bool added = !set.held.test(node);
  set.count += added ? 1 : 0;
  set.held.insert(node);
  if (in_dram(h)) {
    set.dram.insert(node);
  } else {
    set.dram.erase(node);
  }
  return added;
}

void prefix_index::erase_spilled(slot& s, node_index node) {
  const auto number = s.set();
  auto& set = sets_[number];
  if (set.is_bitmap) {
    if (!set.held.test(node)) return;
    set.held.erase(node);
    set.dram.erase(node);
    --set.count;
    if (set.count > list_holders / 2) return;  // half: a set at the border does not flip with every event
    set.held.for_each([&](node_index n) {
      set.list.push_back(pack(n, set.dram.test(n) ? storage_tier::dram : storage_tier::ssd));
    });
    set.held = set.dram = {};
    set.is_bitmap = false;
    return;
  }
  const auto i = std::ranges::lower_bound(set.list, node, {}, node_of);
  if (i == set.list.end() || node_of(*i) != node) return;
  set.list.erase(i);
  if (--set.count > inline_holders) return;
  std::ranges::fill(s.holders, holder{0});
  std::ranges::copy(set.list, std::begin(s.holders));
  set = {};
  free_sets_.push_back(number);
}

bool prefix_index::remove_holder(slot& s, node_index node) {
  if (s.is_spilled()) {
    erase_spilled(s, node);
    return !s.used();
  }
  std::size_t kept = 0;
  for (const auto h : s.holders) {
    if (h != 0 && node_of(h) != node) s.holders[kept++] = h;
  }
  std::fill(s.holders + kept, s.holders + inline_holders, holder{0});
  return kept == 0;
}

void prefix_index::add(const block_key& key, node_index node, storage_tier tier) {
  if (dead_.test(node)) return;
  auto& s = claim(key.low);
  if (s.used()) {
    if (!add_holder(s, node, tier)) return;
  } else {
    s.holders[0] = pack(node, tier);
  }
  if (held_.size() <= node) held_.resize(std::size_t{node} + 1);
  ++held_[node];
}

void prefix_index::remove(const block_key& key, node_index node) {
  const auto* found = find(key.low);
  if (found == nullptr || dead_.test(node) || holder_at(*found, node) == 0) return;
  --held_[node];
  auto& s = segments_[key.low >> 56];
  const auto at = static_cast<std::size_t>(found - s.slots.get());
  const bool alone = found->holders[1] == 0 && !found->is_spilled();
  if (alone ? node_of(found->holders[0]) == node : remove_holder(s.slots[at], node)) erase_at(s, at);
}

// ---- nodes
// ----------------------------------------------------------------------------------------------------------

std::optional<node_index> prefix_index::add_node() {
  if (free_nodes_.empty() && next_node_ >= max_nodes && !dead_list_.empty()) sweep_all();
  if (!free_nodes_.empty()) {
    const auto node = free_nodes_.back();
    free_nodes_.pop_back();
    return node;
  }
  if (next_node_ >= max_nodes) return std::nullopt;
  return static_cast<node_index>(next_node_++);
}

void prefix_index::drop_node(node_index node) {
  if (dead_.test(node)) return;
  dead_.insert(node);
  dead_list_.push_back(node);
  if (node < held_.size()) held_[node] = 0;
}

bool prefix_index::drop_dead(slot& s) {
  if (!s.used()) return false;
  for (auto i = std::size_t{0}; i < sweeping_; ++i) {
    if (holder_at(s, dead_list_[i]) != 0 && remove_holder(s, dead_list_[i])) return true;
  }
  return false;
}

void prefix_index::sweep(std::size_t slots) {
  if (dead_list_.empty()) return;
  if (sweeping_ == 0) {
    sweeping_ = dead_list_.size();
    sweep_segment_ = sweep_slot_ = 0;
  }
  for (; slots > 0; --slots) {
    auto& s = segments_[sweep_segment_];
    if (sweep_slot_ < s.size) {
      const auto at = sweep_slot_++;
      if (drop_dead(s.slots[at]))
        erase_at(s, at);  // looks at the same slot again: another one may have moved there
      continue;
    }
    sweep_slot_ = 0;
    if (++sweep_segment_ < segments_.size()) continue;
    sweep_segment_ = 0;
    for (std::size_t i = 0; i < sweeping_; ++i) {
      dead_.erase(dead_list_[i]);
      free_nodes_.push_back(dead_list_[i]);
    }
    dead_list_.erase(dead_list_.begin(), dead_list_.begin() + static_cast<std::ptrdiff_t>(sweeping_));
    sweeping_ = 0;
    return;
  }
}

void prefix_index::sweep_all() {
  while (!dead_list_.empty()) sweep(~std::size_t{0});
}

// ---- matching
// -------------------------------------------------------------------------------------------------------

/// One pass over the keys of a prompt. Nodes that still hold everything are either listed in `alive_` or,
/// while they are many, members of `crowd_`.
struct prefix_index::walk {
  const prefix_index& index;
  prefix_match& out;
  bool crowded = false;

  void begin(const slot& first) {
    if (first.is_spilled() && index.sets_[first.set()].is_bitmap) {
      const auto& set = index.sets_[first.set()];
      crowded = true;
      out.crowd_ = set.held;
      out.crowd_ -= index.dead_;
      out.crowd_dram_ = set.dram;
      out.crowd_dram_ &= out.crowd_;
      return;
    }
    for (const auto h : index.listed(first)) {
      if (!index.dead_.test(node_of(h))) out.alive_.push_back({node_of(h), 1, in_dram(h) ? 1u : 0u});
    }
  }

  /// Key `i` is held as `s` says. @returns whether any node is left.
  bool next(const slot& s, std::uint32_t i) {
    if (crowded) {
      if (s.is_spilled() && index.sets_[s.set()].is_bitmap) {
        narrow(index.sets_[s.set()], i);
      } else {
        disperse(s, i);
      }
      return crowded || !out.alive_.empty();
    }
    for (std::size_t n = 0; n < out.alive_.size();) {
      auto& m = out.alive_[n];
      const auto h = index.holder_at(s, m.node);
      if (h == 0) {
        out.add(m);
        m = out.alive_.back();
        out.alive_.pop_back();
        continue;
      }
      if (in_dram(h) && m.dram_blocks == i) ++m.dram_blocks;
      m.blocks = i + 1;
      ++n;
    }
    return !out.alive_.empty();
  }

  /// Both are bitmaps: 64 nodes at a time.
  void narrow(const holder_set& set, std::uint32_t i) {
    out.dropped_ = out.crowd_;
    out.dropped_ -= set.held;
    if (!out.dropped_.empty()) {
      leave(out.dropped_, i);
      out.crowd_ &= set.held;
      out.crowd_dram_ &= out.crowd_;
    }
    out.dropped_ = out.crowd_dram_;
    out.dropped_ -= set.dram;
    out.dropped_.for_each([&](node_index n) { dram_blocks(n) = i; });
    out.crowd_dram_ &= set.dram;
    if (out.crowd_.empty()) crowded = false;
  }

  /// Few nodes hold key `i`: the ones of the crowd go on by name, the others stay behind.
  void disperse(const slot& s, std::uint32_t i) {
    for (const auto h : index.listed(s)) {
      const auto node = node_of(h);
      if (!out.crowd_.test(node)) continue;
      const auto before = out.crowd_dram_.test(node) ? i : dram_blocks(node);
      out.alive_.push_back({node, i + 1, before == i && in_dram(h) ? i + 1 : before});
      out.crowd_.erase(node);
      out.crowd_dram_.erase(node);
    }
    leave(out.crowd_, i);
    crowded = false;
  }

  /// These nodes hold exactly the first `blocks` blocks.
  void leave(const node_set& nodes, std::uint32_t blocks) {
    const auto in_memory = node_set::count_common(nodes, out.crowd_dram_);
    const bool as_crowd = in_memory > crowd_size;
    if (as_crowd) {
      auto whole = nodes;
      whole &= out.crowd_dram_;
      out.add_crowd(blocks, whole);
    }
    if (as_crowd && in_memory == nodes.size()) return;
    nodes.for_each([&](node_index n) {
      const bool whole = out.crowd_dram_.test(n);
      if (!whole || !as_crowd) out.add({n, blocks, whole ? blocks : dram_blocks(n)});
    });
  }

  std::uint32_t& dram_blocks(node_index n) {
    if (out.dram_blocks_.size() <= n) out.dram_blocks_.resize(std::size_t{n} + 1);
    return out.dram_blocks_[n];
  }

  void end(std::uint32_t blocks) {
    if (crowded) leave(out.crowd_, blocks);
    for (const auto& m : out.alive_) out.add(m);
    out.alive_.clear();
  }
};

void prefix_index::match(std::span<const block_key> keys, prefix_match& out) const {
  out.clear();
  out.alive_.clear();
  for (std::size_t i = 0; i < std::min(keys.size(), prefetch_ahead); ++i) prefetch_tag(keys[i].low);
  walk w{*this, out};
  std::uint32_t i = 0;
  for (; i < keys.size(); ++i) {
    if (i + prefetch_ahead < keys.size()) prefetch_tag(keys[i + prefetch_ahead].low);
    const auto* s = find(keys[i].low);
    if (s == nullptr) break;
    if (i == 0) {
      w.begin(*s);
      // Nodes with the first block on SSD have none in DRAM.
      if (w.crowded) {
        out.dropped_ = out.crowd_;
        out.dropped_ -= out.crowd_dram_;
        out.dropped_.for_each([&](node_index n) { w.dram_blocks(n) = 0; });
      }
    } else if (!w.next(*s, i)) {
      break;
    }
  }
  w.end(i);
}

std::uint32_t prefix_index::matched_blocks(node_index node, std::span<const block_key> keys) const {
  if (dead_.test(node)) return 0;
  std::uint32_t n = 0;
  for (; n < keys.size(); ++n) {
    const auto* s = find(keys[n].low);
    if (s == nullptr || holder_at(*s, node) == 0) break;
  }
  return n;
}

std::size_t prefix_index::holder_count(const block_key& key) const {
  const auto* s = find(key.low);
  if (s == nullptr) return 0;
  std::size_t n = 0;
  if (s->is_spilled() && sets_[s->set()].is_bitmap)
    return node_set::count_without(sets_[s->set()].held, dead_);
  for (const auto h : listed(*s)) n += dead_.test(node_of(h)) ? 0u : 1u;
  return n;
}

bool prefix_index::kept_elsewhere(const block_key& key, node_index node) const {
  const auto* s = find(key.low);
  const auto own = s == nullptr ? holder{0} : holder_at(*s, node);
  if (own == 0 || dead_.test(node)) return false;
  const auto rank = [&](node_index n, bool dram) {
    const auto lot = (key.high ^ (n + 1) * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    return std::uint64_t{dram} << 63 | lot >> 1;
  };
  const auto mine = rank(node, in_dram(own));
  const auto outranks = [&](node_index n, bool dram) {
    return n != node && !dead_.test(n) && rank(n, dram) > mine;
  };
  if (s->is_spilled() && sets_[s->set()].is_bitmap) {
    const auto& set = sets_[s->set()];
    bool found = false;
    set.held.for_each([&](node_index n) { found = found || outranks(n, set.dram.test(n)); });
    return found;
  }
  return std::ranges::any_of(listed(*s), [&](holder h) { return outranks(node_of(h), in_dram(h)); });
}

std::size_t prefix_index::memory_bytes() const noexcept {
  std::size_t bytes = segments_.capacity() * sizeof(segment) + sets_.capacity() * sizeof(holder_set) +
                      held_.capacity() * sizeof(std::uint64_t);
  for (const auto& s : segments_) bytes += s.size * sizeof(slot);
  for (const auto& set : sets_) {
    bytes += set.list.capacity() * sizeof(holder) + set.held.memory_bytes() + set.dram.memory_bytes();
  }
  return bytes;
}

}  // namespace mooncaf
