#include "storage/kept_prefixes.hpp"

#include <algorithm>

namespace mooncaf {

std::size_t kept_prefixes::new_blocks(std::uint64_t tenant, std::span<const block_key> keys) const {
  const auto has = of_tenant_.find(tenant);
  if (has == of_tenant_.end()) return keys.size();
  return static_cast<std::size_t>(
      std::ranges::count_if(keys, [&](const block_key& key) { return !has->second.contains(key); }));
}

kept_prefixes::kept_map::iterator kept_prefixes::oldest_of(std::uint64_t tenant) {
  const auto first = kept_.lower_bound({tenant, block_key{}});
  auto oldest = kept_.end();
  for (auto i = first; i != kept_.end() && i->first.first == tenant; ++i)
    if (oldest == kept_.end() || i->second.used < oldest->second.used) oldest = i;
  return oldest;
}

kept_prefixes::kept_map::iterator kept_prefixes::end(kept_map::iterator which, std::vector<hold_id>& over) {
  over.push_back(which->second.hold);
  const auto of_tenant = of_tenant_.find(which->first.first);
  for (const auto& key : which->second.keys) {
    const auto here = of_tenant->second.find(key);
    if (--here->second > 0) continue;
    of_tenant->second.erase(here);
    --charged_;
    if (const auto held = held_.find(key); --held->second == 0) held_.erase(held);
  }
  if (of_tenant->second.empty()) of_tenant_.erase(of_tenant);
  return kept_.erase(which);
}

/// What gives way is decided before the prefix has its room: its own earlier parts count as room that it has.
kept_prefixes::decision kept_prefixes::keep(std::uint64_t tenant, std::span<const block_key> keys,
                                            duration ttl, time_point now) {
  decision out;
  if (keys.empty() || ttl <= duration::zero()) return out;
  ++calls_;
  if (const auto known = kept_.find({tenant, keys.back()}); known != kept_.end()) {
    known->second.until = std::max(known->second.until, now + ttl);
    known->second.used = calls_;
    out.kept = true;
    return out;
  }
  if (keys.size() > std::min(limits_.blocks, limits_.per_tenant)) return out;
  const auto has = [&] {
    const auto i = of_tenant_.find(tenant);
    return i == of_tenant_.end() ? std::size_t{0} : i->second.size();
  };
  const auto fits = [&] {
    const auto more = new_blocks(tenant, keys);
    return has() + more <= limits_.per_tenant && charged_ + more <= limits_.blocks;
  };
  // Others' prefixes stay: if all of the tenant's own were not enough, none of them goes.
  if (charged_ - has() + keys.size() > limits_.blocks) return out;
  while (!fits()) end(oldest_of(tenant), out.over);
  entry fresh{next_++, {keys.begin(), keys.end()}, now + ttl, calls_};
  auto& own = of_tenant_[tenant];
  for (const auto& key : keys) {
    if (own[key]++ > 0) continue;
    ++charged_;
    ++held_[key];
  }
  out.fresh = fresh.hold;
  out.kept = true;
  // Parts of it that end no later.
  for (const auto& key : keys.first(keys.size() - 1)) {
    const auto part = kept_.find({tenant, key});
    if (part != kept_.end() && part->second.until <= fresh.until) end(part, out.over);
  }
  kept_.emplace(std::pair{tenant, keys.back()}, std::move(fresh));
  return out;
}

std::vector<kept_prefixes::hold_id> kept_prefixes::expire(time_point now) {
  std::vector<hold_id> over;
  for (auto i = kept_.begin(); i != kept_.end();) {
    if (i->second.until <= now) i = end(i, over);
    else ++i;
  }
  return over;
}

std::vector<kept_prefixes::hold_id> kept_prefixes::drop(std::uint64_t tenant, std::optional<block_key> last) {
  std::vector<hold_id> over;
  for (auto i = kept_.lower_bound({tenant, block_key{}}); i != kept_.end() && i->first.first == tenant;) {
    if (!last || i->first.second == *last) i = end(i, over);
    else ++i;
  }
  return over;
}

std::vector<kept_prefix> kept_prefixes::of(std::uint64_t tenant) const {
  std::vector<kept_prefix> out;
  for (auto i = kept_.lower_bound({tenant, block_key{}}); i != kept_.end() && i->first.first == tenant; ++i)
    out.push_back({i->first.second, static_cast<std::uint32_t>(i->second.keys.size()), i->second.until});
  std::ranges::sort(out, [](const kept_prefix& a, const kept_prefix& b) { return a.until > b.until; });
  return out;
}

}  // namespace mooncaf
