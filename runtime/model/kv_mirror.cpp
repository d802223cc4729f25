#include "runtime/model/kv_mirror.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace mooncaf {

kv_mirror::kv_mirror(const kv_layout& layout, std::uint32_t blocks)
    : layout_(layout),
      residency_(blocks, layout.block_tokens),
      loaded_(layout.n_layers),
      stored_(layout.n_layers) {}

kv_mirror::~kv_mirror() = default;

result<std::unique_ptr<kv_mirror>> kv_mirror::make(device& dev, const kv_layout& layout, std::size_t bytes,
                                                   std::uint32_t longest) {
  const auto blocks = bytes / layout.block_bytes();
  if (const auto needed = layout.blocks_for(longest); blocks < needed)
    return fail(ec::invalid_argument,
                "device-kv: " + std::to_string(bytes) + " bytes hold " + std::to_string(blocks) +
                    " KV blocks, the longest context of " + std::to_string(longest) + " tokens needs " +
                    std::to_string(needed) + " of " + std::to_string(layout.block_bytes()) +
                    " bytes; give more, or a smaller context-length");
  std::unique_ptr<kv_mirror> made(new kv_mirror(layout, static_cast<std::uint32_t>(blocks)));
  auto memory = dev.allocate(blocks * layout.block_bytes());
  if (!memory) return fail(std::move(memory.error()));
  made->memory_ = std::move(*memory);
  made->loads_ = dev.make_copy_queue();
  made->stores_ = dev.make_copy_queue();
  return made;
}

std::size_t kv_mirror::begin(std::span<const batch_item> items) {
  const device_bytes base{reinterpret_cast<std::byte*>(memory_->data())};
  items_.clear();
  next_load_ = 0;
  std::ranges::fill(loaded_, nullptr);
  std::ranges::fill(stored_, nullptr);
  for (const auto& item : items) {
    const auto end = item.start + static_cast<std::uint32_t>(item.tokens.size());
    const auto place = residency_.take(item.sequence, item.start, end);
    if (!place) break;
    auto& placed = items_.emplace_back(placed_item{item, place->who, place->valid, {}});
    for (const auto index : place->blocks.first(residency_.blocks_for(end)))
      placed.blocks.push_back(base + index * layout_.block_bytes());
  }
  return items_.size();
}

kv_copy kv_mirror::whole_layer(const placed_item& p, std::uint32_t block, std::uint32_t layer) const {
  const auto offset = layout_.offset(layer, 0, false, 0);
  return {p.blocks[block] + offset, p.item.blocks[block] + offset, layout_.layer_bytes(), 0, 1};
}

void kv_mirror::load(std::uint32_t layer) {
  for (; next_load_ <= layer; ++next_load_) {
    copies_.clear();
    for (const auto& p : items_) {
      if (p.valid == p.item.start) continue;
      // A block of which the device holds a part is loaded whole: the host holds that part, too.
      for (auto b = p.valid / layout_.block_tokens; b < residency_.blocks_for(p.item.start); ++b)
        copies_.push_back(whole_layer(p, b, next_load_));
    }
    if (copies_.empty()) continue;
    loads_->load(copies_);
    loaded_[next_load_] = loads_->record();
  }
}

void kv_mirror::load_all() { load(layout_.n_layers - 1); }

/// The rows of the pass's own tokens, and no other: the host's block may be somebody else's prefix.
void kv_mirror::add_rows(const placed_item& p, std::uint32_t block, std::uint32_t layer) {
  const auto end = p.item.start + static_cast<std::uint32_t>(p.item.tokens.size());
  const auto origin = block * layout_.block_tokens;
  const auto first = std::max(p.item.start, origin) - origin;
  const auto last = std::min(end - origin, layout_.block_tokens);
  if (last - first == layout_.block_tokens) return copies_.push_back(whole_layer(p, block, layer));
  const auto offset = layout_.offset(layer, 0, false, first);
  copies_.push_back({p.blocks[block] + offset, p.item.blocks[block] + offset,
                     (last - first) * layout_.row_bytes(), layout_.plane_bytes(),
                     std::size_t{2} * layout_.n_kv_heads});
}

void kv_mirror::store(std::uint32_t layer, const event_ptr& written) {
  copies_.clear();
  for (const auto& p : items_) {
    for (auto b = p.item.start / layout_.block_tokens; b < p.blocks.size(); ++b) add_rows(p, b, layer);
  }
  stores_->wait(written);
  stores_->store(copies_);
  stored_[layer] = stores_->record();
}

void kv_mirror::end(bool computed) {
  wait_for(loads_->record());
  wait_for(stores_->record());
  for (const auto& p : items_) {
    const auto count = static_cast<std::uint32_t>(p.item.tokens.size());
    residency_.give_back(p.who, computed ? p.item.start + count : p.valid);
  }
  items_.clear();
}

}  // namespace mooncaf
