#include "runtime/model/pass_results.hpp"

#include <algorithm>
#include <array>

namespace mooncaf {

void pass_results::write_logits(std::span<float> logits) {
  const auto& c = tools_.config();
  const auto& scratch = tools_.scratch;
  const std::size_t n = plan_.last_rows.size();
  const auto h = scratch.h(n, c.dim);
  // When the last layer was computed for every token, no row was moved out of the residual stream.
  const bool moved = n < plan_.tokens.size() && !plan_.every_row;
  const auto x = scratch.x(plan_.tokens.size());
  const auto* gain = tools_.weights.output_gain();
  if (moved) tools_.queue.rms_norm(scratch.last(n), gain, c.rms_eps, h);
  for (std::size_t i = 0; !moved && i < n; ++i)
    tools_.queue.rms_norm(rows_of(x, plan_.last_rows[i], 1), gain, c.rms_eps, rows_of(h, i, 1));
  const auto out = how_.in_place ? tensor{logits.data(), n, c.vocab_size, c.vocab_size} : scratch.logits(n);
  to_logits(h, out);
  if (!how_.in_place) deliver(out, logits);
}

/// Logits of rows behind the model's final norm.
void pass_results::to_logits(tensor h, tensor out) {
  const std::array job{linear_job{&tools_.weights.output(), nullptr, tools_.ranks.own(out)}};
  tools_.queue.linear(h, job);
  tools_.ranks.gather(out);
  if (const auto cap = tools_.config().logit_softcap; cap != 0) tools_.queue.soft_cap(out, cap);
}

/// Lets the device choose from the rows of items that have a choice, and fetches the others'.
void pass_results::deliver(tensor computed, std::span<float> logits) {
  choices_.clear();
  std::uint32_t row = 0;
  for (const auto& item : plan_.items) {
    if (item.want_logits) {
      tools_.queue.download(computed.row(row), logits.first(computed.cols));
      logits = logits.subspan(computed.cols);
    }
    if (item.choose != nullptr) {
      choices_.push_back(*item.choose);
      choices_.back().row = row;
    }
    row += item.needs_logits() ? 1 : 0;
  }
  if (choices_.empty()) return;
  chosen_.resize(choices_.size());
  tools_.queue.choose(computed, choices_, chosen_);
  tools_.queue.synchronize();
  auto next = chosen_.begin();
  for (const auto& item : plan_.items)
    if (item.choose != nullptr) *item.chosen = *next++;
}

void pass_results::checksum_blocks() {
  full_.clear();
  // An item that stays has written no block, and one that wrote blocks of earlier passes, too, would need
  // more checksums: the shard makes them when it reads the blocks.
  const auto differs = [](const batch_item& item) {
    return item.written_from != nullptr && *item.written_from != item.start;
  };
  const auto& items = plan_.items;
  for (std::size_t i = 0; i < items.size(); ++i)
    for (std::size_t b = 0; !differs(items[i]) && b < items[i].checksums.size(); ++b)
      full_.push_back(plan_.seqs[i].blocks[items[i].start / how_.layout.block_tokens + b]);
  if (full_.empty()) return;
  sums_.resize(full_.size());
  tools_.queue.checksum(full_, how_.layout.block_bytes(), sums_);
  tools_.queue.synchronize();
  auto next = sums_.begin();
  for (const auto& item : items)
    if (!differs(item))
      for (auto& sum : item.checksums) sum = *next++;
}

void pass_results::show_rows() {
  for (std::size_t i = 0; plan_.every_row && i < plan_.items.size(); ++i)
    if (const auto& item = plan_.items[i]; item.each_row || item.each_hidden)
      show(item, plan_.seqs[i].q_begin);
}

/// Of an item whose rows begin at row `begin` of the pass.
void pass_results::show(const batch_item& item, std::uint32_t begin) {
  const auto& c = tools_.config();
  auto& queue = tools_.queue;
  if (item.each_row) logits_.resize(how_.shown_rows * c.vocab_size);
  const auto x = tools_.scratch.x(plan_.tokens.size());
  for (std::size_t row = 0; row < item.tokens.size(); row += how_.shown_rows) {
    const auto n = std::min(how_.shown_rows, item.tokens.size() - row);
    const auto h = tools_.scratch.h(n, c.dim);
    queue.rms_norm(rows_of(x, begin + row, n), tools_.weights.output_gain(), c.rms_eps, h);
    if (item.each_hidden) {
      hidden_.resize(n * c.dim);
      queue.download(h.data, hidden_);
      queue.synchronize();
      for (std::size_t i = 0; i < n; ++i)
        item.each_hidden(static_cast<std::uint32_t>(row + i), std::span{hidden_}.subspan(i * c.dim, c.dim));
    }
    if (!item.each_row) continue;
    const auto out =
        how_.in_place ? tensor{logits_.data(), n, c.vocab_size, c.vocab_size} : tools_.scratch.logits(n);
    to_logits(h, out);
    const auto shown = std::span{logits_}.first(n * c.vocab_size);
    if (!how_.in_place) queue.download(out.data, shown);
    queue.synchronize();
    for (std::size_t i = 0; i < n; ++i)
      item.each_row(static_cast<std::uint32_t>(row + i), shown.subspan(i * c.vocab_size, c.vocab_size));
  }
}

}  // namespace mooncaf
