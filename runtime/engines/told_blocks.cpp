#include "runtime/engines/told_blocks.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/sched/block_hash.hpp"

namespace mooncaf {

told_blocks::link told_blocks::after(const link& before, std::span<const std::int32_t> tokens) const {
  link out{before.last, before.depth, {}, before.rest, {}};
  out.rest.insert(out.rest.end(), tokens.begin(), tokens.end());
  std::size_t taken = 0;
  for (; out.rest.size() - taken >= block_tokens_; taken += block_tokens_) {
    const auto key = next_key(out.last, std::span{out.rest}.subspan(taken, block_tokens_));
    out.ours.push_back({key, out.last, out.depth++});
    out.last = key;
  }
  out.rest.erase(out.rest.begin(), out.rest.begin() + static_cast<std::ptrdiff_t>(taken));
  return out;
}

void told_blocks::store(const kv_news& news, held_blocks& held) {
  link before;
  if (news.parent) {
    const auto known = chain_.find(*news.parent);
    if (known == chain_.end()) return;
    before = known->second;
  } else {
    // Other clients' salts are none of ours.
    const auto root = news.salt.empty() ? std::optional{root_} : hash128_in(news.salt);
    if (!root) return;
    before.last = *root;
  }
  for (std::size_t i = 0; i < news.plain; ++i) {
    const auto [at, fresh] = chain_.try_emplace(news.blocks[i]);
    auto& here = at->second;
    if (fresh) here = after(before, std::span{news.tokens}.subspan(i * news.block_tokens, news.block_tokens));
    if (std::ranges::find(here.media, news.medium) == here.media.end()) {
      here.media.push_back(news.medium);
      for (const auto& name : here.ours) held.add(name);
    }
    before = here;
  }
}

void told_blocks::remove(const hash128& block, const std::string& medium, held_blocks& held) {
  const auto known = chain_.find(block);
  if (known == chain_.end() || std::erase(known->second.media, medium) == 0) return;
  for (const auto& name : known->second.ours) held.drop(name.key);
  if (known->second.media.empty()) chain_.erase(known);
}

void told_blocks::forget(held_blocks& held) {
  chain_.clear();
  held.clear();
}

void told_blocks::apply(const kv_news& news, held_blocks& held) {
  if (news.what != block_change::removed) return store(news, held);
  if (news.all) return forget(held);
  for (const auto& block : news.blocks) remove(block, news.medium, held);
}

}  // namespace mooncaf
