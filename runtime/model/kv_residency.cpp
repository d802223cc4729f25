#include "runtime/model/kv_residency.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

kv_residency::kv_residency(std::uint32_t blocks, std::uint32_t block_tokens)
    : block_tokens_(block_tokens), cells_(blocks) {
  for (std::uint32_t i = blocks; i > 0; --i) free_.push_back(i - 1);
}

std::uint32_t kv_residency::blocks_for(std::uint32_t tokens) const noexcept {
  return (tokens + block_tokens_ - 1) / block_tokens_;
}

kv_residency::block_range kv_residency::missing(std::uint32_t valid, std::uint32_t start) const noexcept {
  if (valid >= start) return {};
  return {valid / block_tokens_, blocks_for(start)};
}

std::optional<kv_residency::place> kv_residency::take(const wish& w) {
  taken t{w, {}, 0};
  const auto needed = blocks_for(w.end);
  t.blocks.reserve(needed);
  const auto settled = std::min<std::size_t>(w.start / block_tokens_, w.keys.size());
  for (std::size_t b = 0; b < settled; ++b) {
    const auto found = keyed_.find(w.keys[b]);
    if (found == keyed_.end()) break;
    set_busy(found->second);
    t.blocks.push_back(found->second);
  }
  t.shared = static_cast<std::uint32_t>(t.blocks.size());
  const auto valid = adopt_tail(t);
  const auto have = static_cast<std::uint32_t>(t.blocks.size());
  if (needed > have && !make_room(needed - have)) {
    settle(t, valid);
    return std::nullopt;
  }
  while (t.blocks.size() < needed) {
    t.blocks.push_back(free_.back());
    free_.pop_back();
    set_busy(t.blocks.back());
  }
  const auto ticket = next_ticket_++;
  const auto& kept = tickets_.emplace(ticket, std::move(t)).first->second;
  return place{ticket, kept.blocks, valid};
}

void kv_residency::give_back(std::uint64_t ticket, std::uint32_t valid) {
  const auto t = tickets_.extract(ticket);
  settle(t.mapped(), valid);
}

/// Takes the sequence's blocks that follow those with keys. @returns positions that `t.blocks` hold.
std::uint32_t kv_residency::adopt_tail(taken& t) {
  const auto shared = t.shared * block_tokens_;
  auto found = t.what.sequence == 0 ? tails_.end() : tails_.find(t.what.sequence);
  if (found == tails_.end()) return shared;
  const auto old = std::move(found->second);
  tails_.erase(found);
  const auto needed = blocks_for(t.what.end);
  for (std::size_t i = 0; i < old.blocks.size(); ++i) {
    const auto block = old.blocks[i];
    set_busy(block);
    // What somebody else holds under a key by now, what lost the blocks before it, and what is not asked for.
    if (old.first + i != t.blocks.size() || t.blocks.size() == needed) release(block);
    else t.blocks.push_back(block);
  }
  const auto held =
      std::min({old.valid, t.what.start, static_cast<std::uint32_t>(t.blocks.size()) * block_tokens_});
  return std::max(shared, held);
}

/// Parts with blocks of which positions before `valid` are held: the last first, for in this order they
/// leave.
void kv_residency::settle(const taken& t, std::uint32_t valid) {
  const auto [sequence, keys, start, end] = t.what;
  tail rest;
  for (auto b = static_cast<std::uint32_t>(t.blocks.size()); b-- > 0;) {
    const auto block = t.blocks[b];
    auto& c = cells_[block];
    if (b < t.shared) {
      if (--c.pins == 0) set_idle(block);
    } else if (b * block_tokens_ >= valid) {
      release(block);
    } else if ((b + 1) * block_tokens_ <= valid && b < keys.size()) {
      const auto [at, fresh] = keyed_.try_emplace(keys[b], block);
      if (fresh) {
        c.key = keys[b];
        c.pins = 0;
        set_idle(block);
      } else {  // somebody else computed it meanwhile: theirs is as good, and as young as what follows it
        release(block);
        if (cells_[at->second].pins == 0) {
          set_busy(at->second);
          cells_[at->second].pins = 0;
          set_idle(at->second);
        }
      }
    } else if (sequence == 0) {
      release(block);
    } else {
      c.sequence = sequence;
      c.pins = 0;
      set_idle(block);
      rest.first = b;
      rest.blocks.push_back(block);
    }
  }
  if (rest.blocks.empty()) return;
  drop_tail(sequence);
  std::ranges::reverse(rest.blocks);
  rest.valid = valid;
  tails_.emplace(sequence, std::move(rest));
}

void kv_residency::forget() {
  while (oldest_ != none) evict(oldest_);
}

bool kv_residency::make_room(std::uint32_t wanted) {
  while (free_.size() < wanted && oldest_ != none) evict(oldest_);
  return free_.size() >= wanted;
}

void kv_residency::release(std::uint32_t block) {
  cells_[block] = {};
  free_.push_back(block);
}

void kv_residency::evict(std::uint32_t block) {
  const auto& c = cells_[block];
  if (c.key) {
    keyed_.erase(*c.key);
  } else {
    const auto owner = tails_.find(c.sequence);
    auto& t = owner->second;
    t.blocks.pop_back();  // the oldest of a tail is its last
    t.valid = std::min(t.valid, (t.first + static_cast<std::uint32_t>(t.blocks.size())) * block_tokens_);
    if (t.blocks.empty()) tails_.erase(owner);
  }
  set_busy(block);
  release(block);
}

void kv_residency::drop_tail(std::uint64_t sequence) {
  const auto old = tails_.extract(sequence);
  if (old.empty()) return;
  for (const auto block : old.mapped().blocks) {
    set_busy(block);
    release(block);
  }
}

/// The youngest of those that may leave.
void kv_residency::set_idle(std::uint32_t block) {
  auto& c = cells_[block];
  c.idle = true;
  c.older = newest_;
  c.newer = none;
  (newest_ == none ? oldest_ : cells_[newest_].newer) = block;
  newest_ = block;
}

void kv_residency::set_busy(std::uint32_t block) {
  auto& c = cells_[block];
  ++c.pins;
  if (!c.idle) return;
  c.idle = false;
  (c.older == none ? oldest_ : cells_[c.older].newer) = c.newer;
  (c.newer == none ? newest_ : cells_[c.newer].older) = c.older;
}

bool kv_residency::consistent() const {
  std::vector<int> seen(cells_.size());
  const auto see = [&](std::uint32_t block) { return block < seen.size() && ++seen[block] == 1; };
  if (!std::ranges::all_of(free_, see)) return false;
  std::size_t idle = 0, kept = keyed_.size();
  for (auto b = oldest_; b != none; b = cells_[b].newer, ++idle)
    if (cells_[b].pins != 0 || !cells_[b].idle || !see(b)) return false;
  for (const auto& [key, block] : keyed_) {
    if (cells_[block].key != key) return false;
    if (cells_[block].pins != 0 && !see(block)) return false;
  }
  for (const auto& [sequence, t] : tails_) {
    kept += t.blocks.size();
    if (t.blocks.empty() || t.valid > (t.first + t.blocks.size()) * block_tokens_) return false;
    for (const auto block : t.blocks)
      if (!cells_[block].idle || cells_[block].sequence != sequence || cells_[block].key) return false;
  }
  for (const auto& [id, t] : tickets_)
    for (auto b = t.shared; b < t.blocks.size(); ++b)
      if (cells_[t.blocks[b]].pins != 1 || !see(t.blocks[b])) return false;
  return idle <= kept && std::ranges::all_of(seen, [](int n) { return n == 1; });
}

}  // namespace mooncaf
