#include "runtime/model/kv_arrival.hpp"

#include <algorithm>
#include <utility>

#include "runtime/model/kv_mirror.hpp"

namespace mooncaf {

namespace {

/// Bytes that are handed to the link at once. Passes that fetch a token get their turn between two of these
/// pieces.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

}  // namespace

kv_arrival::kv_arrival(std::shared_ptr<device_kv> kv, std::shared_ptr<copy_queue> queue, prompt what,
                       std::shared_ptr<const void> hold)
    : hold_(std::move(hold)),
      kv_(std::move(kv)),
      queue_(std::move(queue)),
      what_(std::move(what)),
      layers_(kv_->layout().n_layers) {}

std::shared_ptr<kv_arrival> kv_arrival::make(std::shared_ptr<device_kv> kv, std::shared_ptr<copy_queue> queue,
                                             prompt what, std::shared_ptr<const void> hold) {
  std::shared_ptr<kv_arrival> made(
      new kv_arrival(std::move(kv), std::move(queue), std::move(what), std::move(hold)));
  const auto& own = made->what_;
  // The keys live until the blocks are given back: they are `made`'s.
  const auto place = made->kv_->expect({own.sequence, own.keys, own.tokens, own.tokens});
  if (!place) return nullptr;
  made->ticket_ = place->ticket;
  made->valid_ = place->valid;
  for (const auto index : place->blocks) made->blocks_.push_back(made->kv_->block(index));
  for (auto& layer : made->layers_) layer.upto = place->valid;
  made->loaded_ = place->valid == own.tokens;
  return made;
}

kv_arrival::~kv_arrival() { stop(); }

void kv_arrival::landed(std::uint32_t layer, std::uint32_t first, std::uint32_t last) {
  last = std::min(last, what_.tokens);
  if (ticket_ == 0 || failure_ || layer >= layers_.size() || first >= last) return;
  auto& l = layers_[layer];
  if (first > l.upto) {
    auto& known = l.ahead[first];
    known = std::max(known, last);
    return;
  }
  auto end = std::max(l.upto, last);
  for (auto next = l.ahead.begin(); next != l.ahead.end() && next->first <= end; next = l.ahead.erase(next))
    end = std::max(end, next->second);
  load(layer, std::exchange(l.upto, end), end);
  hand_to_link();
}

void kv_arrival::landed(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t layer = 0; layer < layers_.size(); ++layer) landed(layer, first, last);
}

void kv_arrival::load(std::uint32_t layer, std::uint32_t from, std::uint32_t to) {
  const auto& layout = kv_->layout();
  for (auto at = from; at < to;) {
    const auto b = at / layout.block_tokens, first = at % layout.block_tokens;
    const auto rows = std::min(layout.block_tokens - first, to - at);
    append_rows(layout, blocks_[b], what_.blocks[b], layer, first, first + rows, copies_);
    copies_bytes_ += rows * layout.planes() * layout.row_bytes();
    at += rows;
    if (copies_bytes_ >= piece_bytes) hand_to_link();
  }
}

void kv_arrival::hand_to_link() {
  if (copies_.empty()) return;
  kv_->count_moved(copies_bytes_, 0);
  try {
    if (!failure_) queue_->load(copies_);
  } catch (const device_failure& f) {
    failure_ = f;
  }
  copies_.clear();
  copies_bytes_ = 0;
}

/// @returns whether all copies have been made.
bool kv_arrival::wait() {
  try {
    wait_for(queue_->record());
  } catch (const device_failure& f) {
    if (!failure_) failure_ = f;
  }
  return !failure_;
}

void kv_arrival::finish() {
  landed(0, what_.tokens);
  if (ticket_ == 0) return;
  if (wait()) loaded_.store(true, std::memory_order_release);
  else give_back(valid_);
}

void kv_arrival::stop() {
  if (ticket_ == 0) return;
  if (!loaded()) wait();
  give_back(loaded() ? what_.tokens : valid_);
}

void kv_arrival::give_back(std::uint32_t valid) {
  if (const auto ticket = ticket_.exchange(0)) kv_->give_back(ticket, valid);
}

}  // namespace mooncaf
