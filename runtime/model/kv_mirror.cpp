#include "runtime/model/kv_mirror.hpp"

#include <algorithm>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/model/kv_arrival.hpp"

namespace mooncaf {

namespace {

std::size_t bytes_of(std::span<const kv_copy> copies) {
  std::size_t bytes = 0;
  for (const auto& c : copies) bytes += c.bytes();
  return bytes;
}

}  // namespace

void append_rows(const kv_layout& layout, device_bytes block, std::byte* page, std::uint32_t layer,
                 std::uint32_t first, std::uint32_t last, std::vector<kv_copy>& out) {
  const auto there = block + layout.compact().offset(layer, 0, false, first);
  const auto strides = layout.page();
  if (layout.pages == page_order::page_first) {
    for (std::size_t plane = 0; plane < layout.planes(); ++plane)
      out.push_back({there + plane * layout.plane_bytes(), page + strides.offset(layer, plane, first),
                     layout.row_bytes(), layout.row_bytes(), last - first, strides.token});
    return;
  }
  auto* const here = page + strides.offset(layer, 0, first);
  if (last - first == layout.block_tokens) return out.push_back({there, here, layout.layer_bytes(), 0, 1});
  out.push_back({there, here, (last - first) * layout.row_bytes(), layout.plane_bytes(), layout.planes()});
}

kv_mirror::kv_mirror(device& dev, std::shared_ptr<device_kv> kv, const kv_layout& pages, bool writes)
    : kv_(std::move(kv)),
      layout_(pages),
      writes_(writes),
      loads_(dev.make_copy_queue()),
      stores_(dev.make_copy_queue()),
      loaded_(layout_.n_layers),
      stored_(layout_.n_layers) {}

kv_mirror::~kv_mirror() = default;

std::size_t kv_mirror::begin(std::span<const batch_item> items) {
  items_.clear();
  next_load_ = 0;
  std::ranges::fill(loaded_, nullptr);
  std::ranges::fill(stored_, nullptr);
  for (const auto& item : items) {
    const auto end = item.start + static_cast<std::uint32_t>(item.tokens.size());
    const kv_residency::wish wish{item.sequence, item.keys, item.start, end, item.may_stay};
    if (item.arrival != nullptr && item.arrival->loaded()) item.arrival->hand_over();
    // Only the first item waits: two runners that hold places and wait could wait for each other.
    const auto place = items_.empty() ? kv_->wait_for_place(wish) : kv_->take(wish);
    if (!place) break;
    auto& placed = items_.emplace_back(placed_item{item, place->ticket, place->valid, place->write_from, {}});
    if (item.written_from != nullptr) *item.written_from = place->write_from;
    for (const auto index : place->blocks) placed.blocks.push_back(kv_->block(index));
  }
  return items_.size();
}

void kv_mirror::load(std::uint32_t layer) {
  for (; next_load_ <= layer; ++next_load_) {
    copies_.clear();
    for (const auto& p : items_) {
      const auto missing = kv_->missing(p.valid, p.item.start);
      for (auto b = missing.first; b < missing.last; ++b) {
        // No rows of the pass itself where another rank, that has the same heads, may be writing them to the host's block.
        const auto computed = p.item.start - b * layout_.block_tokens;
        const auto rows = writes_ ? layout_.block_tokens : std::min(layout_.block_tokens, computed);
        append_rows(layout_, p.blocks[b], p.item.blocks[b], next_load_, 0, rows, copies_);
      }
    }
    if (copies_.empty()) continue;
    kv_->count_moved(bytes_of(copies_), 0);
    loads_->load(copies_);
    loaded_[next_load_] = loads_->record();
  }
}

void kv_mirror::load_all() { load(layout_.n_layers - 1); }

void kv_mirror::add_layer(std::uint32_t layer) {
  if (!writes_) return;
  for (const auto& p : items_) {
    // Only rows that the pass computed: the rest of the host's block may be another request's prefix.
    const auto end = p.item.start + static_cast<std::uint32_t>(p.item.tokens.size());
    for (auto at = p.write_from; at < end;) {
      const auto b = at / layout_.block_tokens, first = at % layout_.block_tokens;
      const auto last = std::min(end - b * layout_.block_tokens, layout_.block_tokens);
      append_rows(layout_, p.blocks[b], p.item.blocks[b], layer, first, last, copies_);
      at += last - first;
    }
  }
}

event_ptr kv_mirror::hand_over_stores(const event_ptr& written) {
  if (copies_.empty()) return nullptr;
  kv_->count_moved(0, bytes_of(copies_));
  stores_->wait(written);
  stores_->store(copies_);
  return stores_->record();
}

void kv_mirror::store(std::uint32_t layer, const event_ptr& written) {
  copies_.clear();
  add_layer(layer);
  stored_[layer] = hand_over_stores(written);
}

void kv_mirror::store_all(const event_ptr& written) {
  copies_.clear();
  for (std::uint32_t layer = 0; layer < layout_.n_layers; ++layer) add_layer(layer);
  std::ranges::fill(stored_, hand_over_stores(written));
}

void kv_mirror::end(bool computed) {
  wait_for(loads_->record());
  wait_for(stores_->record());
  give_back(computed);
}

void kv_mirror::abandon() {
  for (auto* const queue : {loads_.get(), stores_.get()}) {
    try {
      wait_for(queue->record());
    } catch (const device_failure&) {
    }
  }
  give_back(false);
}

void kv_mirror::give_back(bool computed) {
  for (const auto& p : items_) {
    const auto count = static_cast<std::uint32_t>(p.item.tokens.size());
    kv_->give_back(p.ticket, computed ? p.item.start + count : p.valid);
  }
  items_.clear();
}

}  // namespace mooncaf
