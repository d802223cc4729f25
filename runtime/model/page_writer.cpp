#include "runtime/model/page_writer.hpp"

#include "gpu/device_failure.hpp"
#include "runtime/model/kv_mirror.hpp"

namespace mooncaf {

page_writer::page_writer(device& hardware, std::shared_ptr<device_kv> kv)
    : kv_(std::move(kv)), queue_(hardware.make_copy_queue()) {
  if (page_is_checkable(kv_->layout())) checked_ = dynamic_cast<checked_copies*>(queue_.get());
}

result<std::vector<std::uint64_t>> page_writer::write(std::span<const kv_residency::write::item> blocks,
                                                      std::span<std::byte* const> pages) {
  try {
    return copy(blocks, pages);
  } catch (const device_failure& failure) {
    // A card that is alive may still be copying into the pages, which another request gets next.
    try {
      wait_for(queue_->record());
    } catch (const device_failure&) {
    }
    return fail(ec::unavailable, failure.what());
  }
}

std::vector<std::uint64_t> page_writer::copy(std::span<const kv_residency::write::item> blocks,
                                             std::span<std::byte* const> pages) {
  const auto& layout = kv_->layout();
  std::vector<std::uint64_t> sums;
  if (checked_ != nullptr) {
    std::vector<device_bytes> from;
    for (const auto& b : blocks) from.push_back(kv_->block(b.block));
    sums.resize(blocks.size());
    if (checked_->store_checked(from, pages, layout, sums)) {
      wait_for(queue_->record());
      kv_->count_moved(0, blocks.size() * layout.block_bytes());
      return sums;
    }
    sums.clear();
  }
  std::vector<kv_copy> copies;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
      append_rows(layout, kv_->block(blocks[i].block), pages[i], layer, 0, layout.block_tokens, copies);
  }
  queue_->store(copies);
  wait_for(queue_->record());
  kv_->count_moved(0, blocks.size() * layout.block_bytes());
  for (auto* page : pages) sums.push_back(checksum64(page, layout.pieces()));
  return sums;
}

}  // namespace mooncaf
