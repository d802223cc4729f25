#pragma once
// What a copy queue can do with KV blocks whose bytes lie in a page as they lie on the device.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/copy_queue.hpp"

namespace mooncaf {

/// A `copy_queue` that is one, too, makes checksums of what it carries.
///
/// One thread at a time, that of the queue.
class checked_copies {
 public:
  virtual ~checked_copies() = default;

  /// Stores blocks[i] at pages[i], `bytes` each, and `checksum64` of them at sums[i], reading them once. As
  /// with `copy_queue::store` what is named must live until it is done, `sums` too; the lists are read at
  /// once.
  /// @pre `checksum_fits(bytes)`.
  /// @returns false if it cannot, since pages are not pinned: then nothing was handed over.
  virtual bool store_checked(std::span<const device_bytes> blocks, std::span<std::byte* const> pages,
                             std::size_t bytes, std::span<std::uint64_t> sums) = 0;
};

}  // namespace mooncaf
