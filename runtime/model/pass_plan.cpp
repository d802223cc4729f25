#include "runtime/model/pass_plan.hpp"

#include "runtime/model/kv_mirror.hpp"

namespace mooncaf {

void pass_plan::reserve(std::size_t most_tokens, std::size_t most_logit_rows) {
  tokens.reserve(most_tokens);
  positions.reserve(most_tokens);
  seqs.reserve(most_tokens);
  last_rows.reserve(most_logit_rows);
  last_positions.reserve(most_logit_rows);
  last_seqs.reserve(most_logit_rows);
}

/// The blocks of an item where the device computes; `blocks` has room for those of all items.
std::span<const device_bytes> pass_plan::blocks_of(std::size_t item, std::uint32_t block_tokens,
                                                   const kv_mirror* mirror) {
  if (mirror != nullptr) return mirror->blocks(item);
  const auto end = items[item].start + items[item].tokens.size();
  const auto first = blocks.size();
  for (auto* block : items[item].blocks.first((end + block_tokens - 1) / block_tokens))
    blocks.push_back({block});
  return std::span{blocks}.subspan(first);
}

// The last tokens are listed twice: the last layer computes attention and feed-forward for them alone.
void pass_plan::begin(std::span<const batch_item> batch, std::uint32_t block_tokens,
                      const kv_mirror* mirror) {
  items = batch;
  blocks.clear();
  std::size_t most_blocks = 0;
  for (const auto& item : items) most_blocks += item.blocks.size();
  blocks.reserve(mirror != nullptr ? 0 : most_blocks);
  tokens.clear();
  positions.clear();
  seqs.clear();
  last_rows.clear();
  last_positions.clear();
  last_seqs.clear();
  every_row = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    every_row |= item.each_row || item.each_hidden;
    const auto first = static_cast<std::uint32_t>(tokens.size());
    const auto count = static_cast<std::uint32_t>(item.tokens.size());
    const auto own = blocks_of(i, block_tokens, mirror);
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    for (std::uint32_t t = 0; t < count; ++t) positions.push_back(static_cast<std::int32_t>(item.start + t));
    seqs.push_back({first, count, item.start + count, own});
    if (!item.needs_logits()) continue;
    last_seqs.push_back({static_cast<std::uint32_t>(last_rows.size()), 1, item.start + count, own});
    last_rows.push_back(first + count - 1);
    last_positions.push_back(static_cast<std::int32_t>(item.start + count - 1));
  }
}

}  // namespace mooncaf
