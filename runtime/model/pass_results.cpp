// The results of a pass: logits, tokens chosen on the device, hidden states, checksums.

#include <algorithm>
#include <array>

#include "runtime/model/model_runner.hpp"

namespace mooncaf {

void model_runner::write_logits(std::span<const batch_item> items, std::span<float> logits) {
  const auto& c = model_->config();
  const std::size_t n = plan_.last_rows.size();
  const auto h = scratch_->h(n, c.dim);
  // When the last layer was computed for every token, no row was moved out of the residual stream.
  const bool moved = n < plan_.tokens.size() && !plan_.every_row;
  const auto x = scratch_->x(plan_.tokens.size());
  if (moved) queue_->rms_norm(scratch_->last(n), model_->output_gain(), c.rms_eps, h);
  for (std::size_t i = 0; !moved && i < n; ++i)
    queue_->rms_norm(rows_of(x, plan_.last_rows[i], 1), model_->output_gain(), c.rms_eps, rows_of(h, i, 1));
  const auto out =
      logits_in_place_ ? tensor{logits.data(), n, c.vocab_size, c.vocab_size} : scratch_->logits(n);
  to_logits(h, out);
  if (!logits_in_place_) deliver(items, out, logits);
}

/// Logits of rows behind the model's final norm.
void model_runner::to_logits(tensor h, tensor out) {
  const std::array job{linear_job{&model_->output(), nullptr, own(out)}};
  queue_->linear(h, job);
  gather(out);
  if (const auto cap = model_->config().logit_softcap; cap != 0) queue_->soft_cap(out, cap);
}

/// Lets the device choose from the rows of items that have a choice, and fetches the others'.
void model_runner::deliver(std::span<const batch_item> items, tensor computed, std::span<float> logits) {
  scratch_->choices.clear();
  std::uint32_t row = 0;
  for (const auto& item : items) {
    if (item.want_logits) {
      queue_->download(computed.row(row), logits.first(computed.cols));
      logits = logits.subspan(computed.cols);
    }
    if (item.choose != nullptr) {
      scratch_->choices.push_back(*item.choose);
      scratch_->choices.back().row = row;
    }
    row += item.needs_logits() ? 1 : 0;
  }
  if (scratch_->choices.empty()) return;
  scratch_->chosen.resize(scratch_->choices.size());
  queue_->choose(computed, scratch_->choices, scratch_->chosen);
  queue_->synchronize();
  auto next = scratch_->chosen.begin();
  for (const auto& item : items)
    if (item.choose != nullptr) *item.chosen = *next++;
}

/// Computes the checksums that items ask for, of the blocks that their tokens fill.
void model_runner::checksum_blocks(std::span<const batch_item> items) {
  scratch_->full_blocks.clear();
  // An item that stays has written no block, and one that wrote blocks of earlier passes, too, would need
  // more checksums: the shard makes them when it reads the blocks.
  const auto differs = [](const batch_item& item) {
    return item.written_from != nullptr && *item.written_from != item.start;
  };
  for (std::size_t i = 0; i < items.size(); ++i)
    for (std::size_t b = 0; !differs(items[i]) && b < items[i].checksums.size(); ++b)
      scratch_->full_blocks.push_back(
          plan_.seqs[i].blocks[items[i].start / options_.layout.block_tokens + b]);
  if (scratch_->full_blocks.empty()) return;
  scratch_->checksums.resize(scratch_->full_blocks.size());
  queue_->checksum(scratch_->full_blocks, options_.layout.block_bytes(), scratch_->checksums);
  queue_->synchronize();
  auto next = scratch_->checksums.begin();
  for (const auto& item : items)
    if (!differs(item))
      for (auto& sum : item.checksums) sum = *next++;
}

/// Calls `item.each_hidden` and `item.each_row` for its rows, which begin at row `begin` of the pass.
void model_runner::show_rows(const batch_item& item, std::uint32_t begin) {
  const auto& c = model_->config();
  const auto tile = std::min<std::size_t>(rows_shown_at_once, options_.max_batch_tokens);
  if (item.each_row) scratch_->shown_logits.resize(tile * c.vocab_size);
  const auto x = scratch_->x(plan_.tokens.size());
  for (std::size_t row = 0; row < item.tokens.size(); row += tile) {
    const auto n = std::min(tile, item.tokens.size() - row);
    const auto h = scratch_->h(n, c.dim);
    queue_->rms_norm(rows_of(x, begin + row, n), model_->output_gain(), c.rms_eps, h);
    if (item.each_hidden) {
      scratch_->shown_hidden.resize(n * c.dim);
      queue_->download(h.data, scratch_->shown_hidden);
      queue_->synchronize();
      for (std::size_t i = 0; i < n; ++i)
        item.each_hidden(static_cast<std::uint32_t>(row + i),
                         std::span{scratch_->shown_hidden}.subspan(i * c.dim, c.dim));
    }
    if (!item.each_row) continue;
    const auto out = logits_in_place_ ? tensor{scratch_->shown_logits.data(), n, c.vocab_size, c.vocab_size}
                                      : scratch_->logits(n);
    to_logits(h, out);
    const auto logits = std::span{scratch_->shown_logits}.first(n * c.vocab_size);
    if (!logits_in_place_) queue_->download(out.data, logits);
    queue_->synchronize();
    for (std::size_t i = 0; i < n; ++i)
      item.each_row(static_cast<std::uint32_t>(row + i), logits.subspan(i * c.vocab_size, c.vocab_size));
  }
}

}  // namespace mooncaf
