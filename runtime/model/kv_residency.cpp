#include "runtime/model/kv_residency.hpp"

#include <algorithm>

namespace mooncaf {

kv_residency::kv_residency(std::uint32_t blocks, std::uint32_t block_tokens)
    : blocks_(blocks), block_tokens_(block_tokens) {
  for (std::uint32_t i = blocks; i > 0; --i) free_.push_back(i - 1);
}

std::uint32_t kv_residency::blocks_for(std::uint32_t tokens) const noexcept {
  return (tokens + block_tokens_ - 1) / block_tokens_;
}

std::optional<kv_residency::place> kv_residency::take(std::uint64_t sequence, std::uint32_t start,
                                                      std::uint32_t end) {
  key who{sequence == 0, sequence};
  if (const auto i = sequences_.find(who); i != sequences_.end() && i->second.taken) who.nameless = true;
  if (who.nameless) who.id = next_nameless_++;
  auto& s = sequences_[who];
  s.taken = true;  // before room is made: it must not be taken from itself
  s.used = next_use_++;
  s.valid = std::min(s.valid, start);
  const auto needed = blocks_for(end);
  if (needed > s.blocks.size() && !make_room(needed - static_cast<std::uint32_t>(s.blocks.size()))) {
    give_back(who, s.valid);
    return std::nullopt;
  }
  while (s.blocks.size() < needed) {
    s.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return place{who, s.blocks, s.valid};
}

void kv_residency::give_back(const key& who, std::uint32_t valid) {
  const auto i = sequences_.find(who);
  auto& s = i->second;
  s.taken = false;
  s.valid = valid;
  // Blocks without a valid position are worth nothing to anybody.
  const auto worth = who.nameless ? 0 : blocks_for(valid);
  while (s.blocks.size() > worth) {
    free_.push_back(s.blocks.back());
    s.blocks.pop_back();
  }
  if (s.blocks.empty()) sequences_.erase(i);
}

bool kv_residency::make_room(std::uint32_t wanted) {
  while (free_.size() < wanted) {
    auto victim = sequences_.end();
    for (auto i = sequences_.begin(); i != sequences_.end(); ++i)
      if (!i->second.taken && (victim == sequences_.end() || i->second.used < victim->second.used))
        victim = i;
    if (victim == sequences_.end()) return false;
    auto& s = victim->second;
    free_.push_back(s.blocks.back());
    s.blocks.pop_back();
    s.valid = std::min(s.valid, static_cast<std::uint32_t>(s.blocks.size()) * block_tokens_);
    if (s.blocks.empty()) sequences_.erase(victim);
  }
  return true;
}

std::uint32_t kv_residency::held(std::uint64_t sequence) const {
  const auto i = sequences_.find(key{false, sequence});
  return i == sequences_.end() ? 0 : i->second.valid;
}

bool kv_residency::consistent() const {
  std::vector<bool> seen(blocks_);
  std::size_t count = 0;
  const auto see = [&](std::uint32_t block) {
    const bool fresh = block < blocks_ && !seen[block];
    if (fresh) seen[block] = true;
    ++count;
    return fresh;
  };
  if (!std::ranges::all_of(free_, see)) return false;
  for (const auto& [who, s] : sequences_)
    if (!std::ranges::all_of(s.blocks, see) || s.valid > s.blocks.size() * block_tokens_) return false;
  return count == blocks_;
}

}  // namespace mooncaf
