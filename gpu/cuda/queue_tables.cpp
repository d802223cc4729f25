#include "gpu/cuda/queue_tables.hpp"

#include <algorithm>
#include <functional>

#include "gpu/host/vocab_ops.hpp"

namespace mooncaf::cuda {

namespace {

std::uint32_t narrowed(std::size_t n) { return static_cast<std::uint32_t>(n); }

}  // namespace

void kv_write_tables::put(stream& on, const kv_layout& layout, std::size_t rows,
                          std::span<const attention_seq> seqs, kv_write_params& p) {
  blocks_.assign(rows, nullptr);
  offsets_.assign(rows, 0);
  for (const auto& seq : seqs) {
    for (std::uint32_t i = 0; i < seq.q_tokens; ++i) {
      const auto position = seq.kv_tokens - seq.q_tokens + i;
      blocks_[seq.q_begin + i] = seq.blocks[position / layout.block_tokens].at;
      offsets_[seq.q_begin + i] = narrowed(position % layout.block_tokens * layout.row_bytes());
    }
  }
  p.blocks = device_blocks_.put(on, blocks_);
  p.row_offsets = device_offsets_.put(on, offsets_);
}

void attention_plan::make(std::span<const attention_seq> seqs, std::size_t rows, std::uint32_t group,
                          std::uint32_t tile_rows) {
  tiles_.clear();
  blocks_.clear();
  contexts_.assign(rows, 0);
  longest_ = 0;
  for (const auto& seq : seqs) {
    if (seq.q_tokens == 0) continue;
    const attention_tile whole{seq.q_begin, seq.q_tokens, seq.kv_tokens, narrowed(blocks_.size()), 0};
    for (std::uint32_t row = 0; row < seq.q_tokens * group; row += tile_rows) {
      tiles_.push_back(whole);
      tiles_.back().first_row = row;
    }
    for (const auto& block : seq.blocks) blocks_.push_back(block.at);
    for (std::uint32_t i = 0; i < seq.q_tokens; ++i)
      contexts_[seq.q_begin + i] = seq.kv_tokens - seq.q_tokens + i + 1;
    longest_ = std::max(longest_, seq.kv_tokens);
  }
  // Tiles start in order, and those of long contexts take longest.
  std::ranges::stable_sort(tiles_, std::greater{}, &attention_tile::kv_tokens);
}

void attention_plan::put(stream& on, attention_params& p) {
  p.tiles = device_tiles_.put(on, tiles_);
  p.blocks = device_blocks_.put(on, blocks_);
}

void attention_plan::split(std::size_t splits, attention_params& p) {
  const auto rows = splits * contexts_.size() * p.heads;
  p.sums = sums_.of(rows * p.kv.head_dim);
  p.peaks = peaks_.of(rows * 2);
}

void choice_tables::put(stream& on, std::span<const token_choice> how, choose_params& p) {
  rows_.clear();
  edits_.clear();
  std::size_t tops = 0;
  for (const auto& h : how) {
    row_choice c;
    c.u = h.u;
    c.row = h.row;
    c.greedy = h.greedy ? 1 : 0;
    c.per_degree = h.greedy ? 1 : 1 / h.limits.temperature;
    c.nats = nats_kept(h.limits.min_p);
    c.top_k = narrowed(static_cast<std::size_t>(std::max(h.limits.top_k, 0)));
    c.top_p = h.limits.top_p;
    c.first_edit = narrowed(edits_.size());
    c.edits = narrowed(h.edits.size());
    c.first_top = narrowed(tops);
    c.tops = narrowed(h.top.size());
    c.describe = h.describe ? 1 : 0;
    rows_.push_back(c);
    edits_.insert(edits_.end(), h.edits.begin(), h.edits.end());
    tops += h.top.size();
  }
  p.choices = device_rows_.put(on, rows_);
  p.edits = edits_.empty() ? nullptr : device_edits_.put(on, edits_);
  p.raw = raw_.of(edits_.size());
  p.tops = tops_.of(tops);
  p.out = chosen_.of(how.size());
}

void choice_tables::take(stream& on, const choose_params& p, std::span<const token_choice> how,
                         std::span<chosen_token> out) {
  on.download(out.data(), reinterpret_cast<const std::byte*>(p.out), out.size_bytes());
  for (std::size_t i = 0; i < how.size(); ++i) {
    if (how[i].top.empty()) continue;
    on.download(how[i].top.data(), reinterpret_cast<const std::byte*>(p.tops + rows_[i].first_top),
                how[i].top.size_bytes());
  }
}

void checksum_tables::put(stream& on, std::span<const device_bytes> blocks, checksum_params& p) {
  blocks_.clear();
  for (const auto& b : blocks) blocks_.push_back(b.at);
  p.blocks = device_blocks_.put(on, blocks_);
  p.out = sums_.of(blocks.size());
}

}  // namespace mooncaf::cuda
