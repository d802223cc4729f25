#include "actors/kv_stream.hpp"

#include <algorithm>
#include <utility>

#include "runtime/sched/link_book.hpp"

namespace mooncaf {

namespace {

/// Tag value of a transfer that carries all layers of a reused prefix.
constexpr std::uint32_t every_layer = 0xFFFFFFFFu;

}  // namespace

kv_stream::kv_stream(attempt_id id, const kv_layout& layout, const std::shared_ptr<data_plane>& plane,
                     std::shared_ptr<std::atomic<std::uint64_t>> transfer_ids,
                     std::shared_ptr<link_book> links, source from,
                     std::function<void(bool delivered)> on_end)
    : id_(id),
      layout_(layout),
      plane_(plane),
      transfer_ids_(std::move(transfer_ids)),
      links_(std::move(links)),
      from_(std::move(from)),
      on_end_(std::move(on_end)) {}

void kv_stream::set_target(const kv_target& target) {
  std::unique_lock lock{mutex_};
  if (target_ || ended_) return;
  target_ = target;
  draining_ = true;
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& what : waiting) {
    if (!stopped_ && !failed_) submit(what, lock);
  }
  draining_ = false;
  settle(lock);
}

void kv_stream::prefix_ready(std::uint32_t tokens, std::uint32_t from) {
  ready({every_layer, from, tokens - from, true});
}

void kv_stream::layer_ready(std::uint32_t layer, std::uint32_t start, std::size_t count) {
  ready({layer, start, static_cast<std::uint32_t>(count), false});
}

void kv_stream::ready(const piece& what) {
  std::unique_lock lock{mutex_};
  if (stopped_ || failed_ || ended_) return;
  if (target_) {
    submit(what, lock);
  } else {
    waiting_.push_back(what);
  }
}

void kv_stream::add_rows(std::vector<slice_pair>& out, std::uint32_t block, std::uint32_t layer,
                         std::uint32_t first_row, std::uint32_t rows) const {
  const auto local = from_.offsets[block];
  const auto remote = target_->offsets[block - target_->have_blocks];
  const auto add = [&](std::uint64_t at, std::uint64_t length) {
    out.push_back({{from_.region, local + at, length}, {target_->region, remote + at, length}, std::nullopt});
  };
  const auto page = layout_.page();
  if (layout_.pages == page_order::page_first) {
    for (auto row = first_row; row < first_row + rows; ++row)
      add(page.offset(layer, 0, row), layout_.planes() * layout_.row_bytes());
    return;
  }
  if (rows == layout_.block_tokens) return add(layer * page.layer, layout_.layer_bytes());
  for (std::size_t plane = 0; plane < layout_.planes(); ++plane)
    add(page.offset(layer, plane, first_row), rows * layout_.row_bytes());
}

/// Rows of all layers, where they are one piece.
void kv_stream::add_tokens(std::vector<slice_pair>& out, std::uint32_t block, std::uint32_t first_row,
                           std::uint32_t rows) const {
  const auto token = layout_.page().token;
  const auto local = from_.offsets[block] + first_row * token;
  const auto remote = target_->offsets[block - target_->have_blocks] + first_row * token;
  out.push_back({{from_.region, local, rows * token}, {target_->region, remote, rows * token}, std::nullopt});
}

std::vector<slice_pair> kv_stream::slices_of(const piece& what) const {
  std::vector<slice_pair> out;
  const auto end = what.start + what.count;
  auto at = std::max(what.start, target_->have_blocks * layout_.block_tokens);
  while (at < end) {
    const auto block = at / layout_.block_tokens;
    const auto row = at % layout_.block_tokens;
    const auto rows = std::min(layout_.block_tokens - row, end - at);
    if (what.all_layers && layout_.pages == page_order::page_first) {
      add_tokens(out, block, row, rows);
    } else if (what.all_layers) {
      for (std::uint32_t layer = 0; layer < layout_.n_layers; ++layer) add_rows(out, block, layer, row, rows);
    } else {
      add_rows(out, block, what.layer, row, rows);
    }
    at += rows;
  }
  return out;
}

void kv_stream::submit(const piece& what, std::unique_lock<std::mutex>& lock) {
  transfer order;
  order.slices = slices_of(what);
  if (order.slices.empty()) return;
  order.id = transfer_id{transfer_ids_->fetch_add(1)};
  order.peer = target_->node;
  order.op = transfer_op::write;
  order.tag = {request_id{id_.owner()}, what.start / layout_.block_tokens, what.layer, 0};
  under_way_.push_back(order.id);
  ++submitted_;
  const auto bytes = order.size_bytes();
  bytes_ += bytes;
  // The completion may come on this very thread.
  lock.unlock();
  if (const auto plane = plane_.lock()) {
    const auto peer = order.peer;
    const auto ahead = links_->began(peer, bytes);
    plane->submit(std::move(order), [self = shared_from_this(), peer, bytes, ahead](const completion& done) {
      self->links_->ended(peer, static_cast<std::uint8_t>(done.path), bytes, ahead,
                          from_seconds(done.seconds), done.outcome.has_value(), clock_type::now());
      self->completed(done);
    });
  } else {
    completed({order.id, fail(ec::cancelled, "the data plane is gone")});
  }
  lock.lock();
}

void kv_stream::completed(const completion& done) {
  std::unique_lock lock{mutex_};
  std::erase(under_way_, done.id);
  if (!done.outcome) failed_ = true;
  fenced_ = fenced_ && done.fenced;
  settle(lock);
}

void kv_stream::finish(std::function<void(std::uint32_t transfers)> on_count) {
  std::unique_lock lock{mutex_};
  finished_ = true;
  on_count_ = std::move(on_count);
  settle(lock);
}

void kv_stream::stop() {
  std::unique_lock lock{mutex_};
  if (ended_) return;
  stopped_ = true;
  waiting_.clear();
  const auto cancel = under_way_;
  lock.unlock();
  if (const auto plane = plane_.lock()) {
    for (const auto id : cancel) plane->cancel(id);
  }
  lock.lock();
  settle(lock);
}

void kv_stream::settle(std::unique_lock<std::mutex>& lock) {
  if (draining_) return;
  if (finished_ && target_ && on_count_ && !stopped_ && !failed_) {
    // Told before the last landing is confirmed here: the decode side counts for itself.
    const auto tell = std::exchange(on_count_, nullptr);
    const auto count = submitted_;
    lock.unlock();
    tell(count);
    lock.lock();
  }
  const bool nothing_to_come = failed_ || stopped_ || (finished_ && target_);
  if (ended_ || !nothing_to_come || !under_way_.empty()) return;
  ended_ = true;
  const auto tell = std::exchange(on_end_, nullptr);
  on_count_ = nullptr;
  const bool delivered = !failed_ && !stopped_;
  lock.unlock();
  if (tell) tell(delivered);
  lock.lock();
}

bool kv_stream::fenced() const {
  const std::lock_guard lock{mutex_};
  return fenced_;
}

std::uint64_t kv_stream::bytes_sent() const {
  const std::lock_guard lock{mutex_};
  return bytes_;
}

}  // namespace mooncaf
