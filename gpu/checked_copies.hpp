#pragma once
// A copy queue's offer to checksum whole KV blocks on their way to their pages.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/copy_queue.hpp"
#include "gpu/device.hpp"
#include "runtime/base/kv_layout.hpp"

namespace mooncaf {

/// Whether blocks of this layout can be checksummed on their way: by words of 8 bytes, which 31 bits count.
constexpr bool page_is_checkable(const kv_layout& layout) noexcept {
  constexpr std::size_t most_words = std::size_t{1} << 31;
  const auto pieces = layout.pieces();
  return checksum_fits(layout.block_bytes()) && layout.row_bytes() % 8 == 0 &&
         pieces.stride() * pieces.count / 8 < most_words;
}

/// A `copy_queue` that is one, too, makes checksums of the blocks that it carries.
///
/// One thread at a time, that of the queue.
class checked_copies {
 public:
  virtual ~checked_copies() = default;

  /// Stores blocks[i] as the page whose first piece is at pages[i], in the layout's order of pages, and
  /// `checksum64` of the page's pieces at sums[i], reading the block once. As with `copy_queue::store` the
  /// memory must live until the copy is done, `sums` too; the lists are read at once.
  /// @pre `page_is_checkable(layout)`.
  /// @returns false if it cannot, since pages are not pinned: then nothing was handed over.
  virtual bool store_checked(std::span<const device_bytes> blocks, std::span<std::byte* const> pages,
                             const kv_layout& layout, std::span<std::uint64_t> sums) = 0;
};

}  // namespace mooncaf
