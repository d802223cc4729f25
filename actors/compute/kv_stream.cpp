#include "actors/compute/kv_stream.hpp"

#include <algorithm>
#include <utility>

#include "actors/compute/kv_piece.hpp"
#include "runtime/sched/link_book.hpp"

namespace mooncaf {

namespace {

/// Of a token, where its layers lie side by side: what a slice costs beside its bytes is small against these.
constexpr std::size_t worth_a_slice = 16 * KiB;

/// Layers that leave together: one, unless pages are laid out by token.
std::uint32_t layers_together(const kv_layout& layout) {
  if (layout.pages != page_order::page_first) return 1;
  const auto groups = (layout.bytes_per_token() + worth_a_slice - 1) / worth_a_slice;
  return static_cast<std::uint32_t>((layout.n_layers + groups - 1) / groups);
}

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
      together_most_(layers_together(layout)),
      on_end_(std::move(on_end)) {}

void kv_stream::set_target(const kv_target& target) {
  // Of pages that are laid out by token a token's planes and layers leave as one piece, which a device's
  // blocks do not have.
  const bool leads =
      from_.device && layout_.pages != page_order::page_first && from_.device->leads_to(target.node);
  std::unique_lock lock{mutex_};
  if (target_ || ended_) return;
  target_ = target;
  direct_ = leads;
  draining_ = true;
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& what : waiting) {
    if (!stopped_ && !failed_) submit(what, lock);
  }
  draining_ = false;
  settle(lock);
}

void kv_stream::prefix_ready(std::uint32_t tokens, std::uint32_t from) {
  ready({0, from, tokens - from, layout_.n_layers});
}

void kv_stream::layer_ready(std::uint32_t layer, std::uint32_t start, std::size_t count) {
  if (const auto what = gathered(layer, start, static_cast<std::uint32_t>(count))) ready(*what);
}

std::optional<kv_stream::piece> kv_stream::gathered(std::uint32_t layer, std::uint32_t start,
                                                    std::uint32_t count) {
  if (together_most_ == 1) return piece{layer, start, count};
  const std::lock_guard lock{mutex_};
  auto& held = together_[start];
  // Else a pass begins anew.
  const bool behind = held.layers > 0 && layer == held.layer + held.layers && count == held.count;
  if (!behind) held = {layer, start, count, 0};
  ++held.layers;
  if (held.layers < together_most_ && layer + 1 < layout_.n_layers) return std::nullopt;
  return together_.extract(start).mapped();
}

void kv_stream::ready(const piece& what) {
  std::unique_lock lock{mutex_};
  if (stopped_ || failed_ || ended_ || left_directly(what, lock)) return;
  if (target_) {
    submit(what, lock);
  } else {
    waiting_.push_back(what);
  }
}

void kv_stream::on_device(std::uint32_t layer, std::uint32_t start, std::uint32_t count,
                          std::span<const device_bytes> blocks) {
  std::unique_lock lock{mutex_};
  if (!direct_ || stopped_ || failed_ || ended_) return;
  std::vector<std::uint64_t> offsets;
  offsets.reserve(blocks.size());
  for (const auto& block : blocks)
    offsets.push_back(static_cast<std::uint64_t>(block.at - from_.device->base.at));
  const piece what{layer, start, count};
  const page_strides strides{layout_.layer_bytes(), layout_.plane_bytes(), layout_.row_bytes()};
  auto order =
      order_of(what, {from_.device->region, offsets, strides}, transfer_id{transfer_ids_->fetch_add(1)});
  if (order.slices.empty()) return;
  directly_[{layer, start}] = {order.id};
  ++reading_;
  hand_over(
      std::move(order), true, [this, what](const completion& done) { read(what, done); }, lock);
}

void kv_stream::let_go() {
  std::unique_lock lock{mutex_};
  unread_.wait(lock, [&] { return reading_ == 0; });
}

bool kv_stream::left_directly(const piece& what, std::unique_lock<std::mutex>& lock) {
  const auto i = directly_.find({what.layer, what.start});
  if (i == directly_.end()) return false;
  if (i->second.under_way) {
    i->second.in_memory = true;
    return true;
  }
  const auto ended = i->second;
  directly_.erase(i);
  if (ended.failed) again(what, ended.id, lock);
  return true;
}

/// Under its old id, so that it lands once whatever became of the first attempt.
void kv_stream::again(const piece& what, transfer_id id, std::unique_lock<std::mutex>& lock) {
  hand_over(
      order_of(what, in_memory(), id), false, [this](const completion& done) { completed(done); }, lock);
}

/// What a transfer from the device came to.
void kv_stream::read(const piece& what, const completion& done) {
  std::unique_lock lock{mutex_};
  --reading_;
  unread_.notify_all();
  const auto i = directly_.find({what.layer, what.start});
  auto& own = i->second;
  own.under_way = false;
  if (done.outcome) from_.device->sent(done.bytes);
  // A wrong checksum was announced over there: that attempt is lost.
  const bool repeat =
      !done.outcome && done.outcome.error() != ec::corrupt && done.fenced && !stopped_ && !failed_;
  if (!repeat) {
    if (own.in_memory || !done.outcome) directly_.erase(i);
    lock.unlock();
    return completed(done);
  }
  direct_ = false;
  std::erase(under_way_, done.id);
  own.failed = true;
  if (!own.in_memory) return;
  directly_.erase(i);
  again(what, done.id, lock);
}

void kv_stream::add_rows(std::vector<slice_pair>& out, const place& from, std::uint32_t block,
                         std::uint32_t layer, std::uint32_t first_row, std::uint32_t rows) const {
  const auto local = from.offsets[block];
  const auto remote = target_->offsets[block - target_->have_blocks];
  const auto page = layout_.page();
  const auto add = [&](std::size_t plane, std::uint32_t row, std::uint64_t length) {
    out.push_back({{from.region, local + from.strides.offset(layer, plane, row), length},
                   {target_->region, remote + page.offset(layer, plane, row), length},
                   std::nullopt});
  };
  if (rows == layout_.block_tokens) return add(0, 0, layout_.layer_bytes());
  for (std::size_t plane = 0; plane < layout_.planes(); ++plane)
    add(plane, first_row, rows * layout_.row_bytes());
}

/// Rows of layers that lie side by side in a token's piece; of all of them a run of tokens is one piece.
void kv_stream::add_tokens(std::vector<slice_pair>& out, const piece& what, std::uint32_t block,
                           std::uint32_t first_row, std::uint32_t rows) const {
  const auto page = layout_.page();
  const auto local = from_.offsets[block], remote = target_->offsets[block - target_->have_blocks];
  const bool all = what.layers == layout_.n_layers;
  const auto length = what.layers * page.layer;
  for (std::uint32_t row = 0; row < (all ? 1 : rows); ++row) {
    const auto at = page.offset(what.layer, 0, first_row + row), bytes = all ? rows * length : length;
    out.push_back({{from_.region, local + at, bytes}, {target_->region, remote + at, bytes}, std::nullopt});
  }
}

std::vector<slice_pair> kv_stream::slices_of(const piece& what, const place& from) const {
  std::vector<slice_pair> out;
  const auto end = what.start + what.count;
  auto at = std::max(what.start, target_->have_blocks * layout_.block_tokens);
  while (at < end) {
    const auto block = at / layout_.block_tokens;
    const auto row = at % layout_.block_tokens;
    const auto rows = std::min(layout_.block_tokens - row, end - at);
    if (layout_.pages == page_order::page_first) {
      add_tokens(out, what, block, row, rows);
    } else {
      for (std::uint32_t layer = 0; layer < what.layers; ++layer)
        add_rows(out, from, block, what.layer + layer, row, rows);
    }
    at += rows;
  }
  return out;
}

transfer kv_stream::order_of(const piece& what, const place& from, transfer_id id) const {
  transfer order;
  order.slices = slices_of(what, from);
  order.id = id;
  order.peer = target_->node;
  order.op = transfer_op::write;
  const auto first = std::max(what.start, target_->have_blocks * layout_.block_tokens);
  order.tag = tag_of(id_.owner(), {what.layer, first, what.start + what.count, what.layers});
  return order;
}

void kv_stream::submit(const piece& what, std::unique_lock<std::mutex>& lock) {
  auto order = order_of(what, in_memory(), transfer_id{transfer_ids_->fetch_add(1)});
  if (order.slices.empty()) return;
  hand_over(
      std::move(order), true, [this](const completion& done) { completed(done); }, lock);
}

void kv_stream::hand_over(transfer order, bool first, std::function<void(const completion&)> ended,
                          std::unique_lock<std::mutex>& lock) {
  under_way_.push_back(order.id);
  const auto bytes = order.size_bytes();
  if (first) {
    ++submitted_;
    bytes_ += bytes;
  }
  // The completion may come on this very thread.
  lock.unlock();
  if (const auto plane = plane_.lock()) {
    const auto peer = order.peer;
    const auto ahead = links_->began(peer, bytes);
    plane->submit(std::move(order), [self = shared_from_this(), ended = std::move(ended), peer, bytes,
                                     ahead](const completion& done) {
      self->links_->ended(peer, static_cast<std::uint8_t>(done.path), bytes, ahead,
                          from_seconds(done.seconds), done.outcome.has_value(), clock_type::now());
      ended(done);
    });
  } else {
    ended({order.id, fail(ec::cancelled, "the data plane is gone")});
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
