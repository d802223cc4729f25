#include "runtime/compute/kv_stream.hpp"

#include <utility>

#include "runtime/sched/link_book.hpp"

namespace mooncaf {

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
      gathering_(layout),
      end_(std::move(on_end)) {}

void kv_stream::set_target(const kv_target& target) {
  // Of pages that are laid out by token a token's planes and layers leave as one piece, which a device's
  // blocks do not have.
  const bool leads =
      from_.device && layout_.pages != page_order::page_first && from_.device->leads_to(target.node);
  std::unique_lock lock{mutex_};
  if (target_ || end_.ended()) return;
  target_ = target;
  from_device_ = leads;
  draining_ = true;
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& what : waiting) {
    if (!end_.over()) submit(what, lock);
  }
  draining_ = false;
  settle(lock);
}

void kv_stream::prefix_ready(std::uint32_t tokens, std::uint32_t from) {
  ready({0, from, tokens, layout_.n_layers});
}

void kv_stream::layer_ready(std::uint32_t layer, std::uint32_t start, std::size_t count) {
  std::unique_lock lock{mutex_};
  const auto what = gathering_.add({layer, start, start + static_cast<std::uint32_t>(count)});
  lock.unlock();
  if (what) ready(*what);
}

void kv_stream::ready(const kv_piece& what) {
  std::unique_lock lock{mutex_};
  if (end_.over()) return;
  if (const auto direct = directly_.in_memory(what); direct.left) {
    if (direct.again) again(what, *direct.again, lock);
  } else if (target_) {
    submit(what, lock);
  } else {
    waiting_.push_back(what);
  }
}

void kv_stream::on_device(std::uint32_t layer, std::uint32_t start, std::uint32_t count,
                          std::span<const device_bytes> blocks) {
  std::unique_lock lock{mutex_};
  if (!from_device_ || end_.over()) return;
  std::vector<std::uint64_t> offsets;
  offsets.reserve(blocks.size());
  for (const auto& block : blocks)
    offsets.push_back(static_cast<std::uint64_t>(block.at - from_.device->base.at));
  const kv_piece what{layer, start, start + count};
  const page_strides strides{layout_.layer_bytes(), layout_.plane_bytes(), layout_.row_bytes()};
  auto order =
      order_of(what, {from_.device->region, offsets, strides}, transfer_id{transfer_ids_->fetch_add(1)});
  if (order.slices.empty()) return;
  directly_.began(what, order.id);
  hand_over(
      std::move(order), true, [this, what](const completion& done) { read(what, done); }, lock);
}

void kv_stream::let_go() {
  std::unique_lock lock{mutex_};
  unread_.wait(lock, [&] { return directly_.under_way() == 0; });
}

void kv_stream::again(const kv_piece& what, transfer_id id, std::unique_lock<std::mutex>& lock) {
  hand_over(
      order_of(what, in_memory(), id), false, [this](const completion& done) { completed(done); }, lock);
}

void kv_stream::read(const kv_piece& what, const completion& done) {
  std::unique_lock lock{mutex_};
  if (done.outcome) from_.device->sent(done.bytes);
  // A wrong checksum was announced over there: that attempt is lost.
  const bool repeat = !done.outcome && done.outcome.error() != ec::corrupt && done.fenced && !end_.over();
  const bool now = directly_.ended(what, done.outcome.has_value(), repeat);
  unread_.notify_all();
  if (!repeat) {
    lock.unlock();
    return completed(done);
  }
  from_device_ = false;
  std::erase(under_way_, done.id);
  if (now) again(what, done.id, lock);
}

transfer kv_stream::order_of(const kv_piece& what, const block_place& from, transfer_id id) const {
  transfer order;
  order.slices = slices_of(what, layout_, from, *target_);
  order.id = id;
  order.peer = target_->node;
  order.op = transfer_op::write;
  auto sent = what;
  sent.first = first_missing(what, layout_, *target_);
  order.tag = tag_of(id_.owner(), sent);
  return order;
}

void kv_stream::submit(const kv_piece& what, std::unique_lock<std::mutex>& lock) {
  auto order = order_of(what, in_memory(), transfer_id{transfer_ids_->fetch_add(1)});
  if (order.slices.empty()) return;
  hand_over(
      std::move(order), true, [this](const completion& done) { completed(done); }, lock);
}

void kv_stream::hand_over(transfer order, bool first, std::function<void(const completion&)> ended,
                          std::unique_lock<std::mutex>& lock) {
  under_way_.push_back(order.id);
  const auto bytes = order.size_bytes();
  if (first) end_.submitted();
  // The completion may come on this very thread.
  lock.unlock();
  if (const auto plane = plane_.lock()) {
    const auto entry = links_->began(order.peer, link_flow::out, bytes);
    plane->submit(std::move(order), [self = shared_from_this(), ended = std::move(ended),
                                     entry](const completion& done) {
      self->links_->ended(entry, static_cast<std::uint8_t>(done.path), from_seconds(done.seconds),
                          done.outcome.has_value(), clock_type::now());
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
  end_.completed(done.outcome.has_value(), done.fenced);
  settle(lock);
}

void kv_stream::finish(std::function<void(std::uint32_t transfers)> on_count) {
  std::unique_lock lock{mutex_};
  end_.finish(std::move(on_count));
  settle(lock);
}

void kv_stream::stop() {
  std::unique_lock lock{mutex_};
  if (end_.ended()) return;
  end_.stop();
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
  while (const auto tell = end_.next(target_.has_value(), under_way_.empty())) {
    lock.unlock();
    tell();
    lock.lock();
  }
}

bool kv_stream::fenced() const {
  const std::lock_guard lock{mutex_};
  return end_.fenced();
}

}  // namespace mooncaf
