#pragma once
// Cuts a span of memory into equal slots, one KV block each.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Place of one KV block in an arena. Plain value; says nothing about who may use it.
struct slot_ref {
  std::uint32_t index = 0;
  std::uint64_t offset = 0;      ///< bytes from the base of the arena: what a remote peer needs
  std::byte* address = nullptr;  ///< in this process

  friend bool operator==(const slot_ref&, const slot_ref&) noexcept = default;
};

/// Fixed-size slots with O(1) allocate and free, last freed first used (its pages are resident and its lines
/// warm). Does not own the memory and never reads or writes it. @thread not synchronised.
class block_allocator {
 public:
  /// Slots start at multiples of this, so that direct I/O and vector loads need no bounce buffer.
  static constexpr std::size_t alignment = 4096;

  /// @param memory       aligned to `alignment`; only whole slots are used.
  /// @param block_bytes  bytes of one block, e.g. `kv_layout::block_bytes()`; rounded up to `alignment`.
  /// @error `ec::invalid_argument` if not one slot fits, more than 2^32-2 do, or the memory is not aligned.
  static result<block_allocator> create(std::span<std::byte> memory, std::size_t block_bytes);

  /// A free slot, or nothing when all are taken.
  std::optional<slot_ref> allocate();
  /// @error `ec::invalid_argument` for an index out of range, `ec::internal` for a slot that is free already.
  result<void> free(std::uint32_t index);

  slot_ref at(std::uint32_t index) const noexcept;
  bool allocated(std::uint32_t index) const noexcept { return index < used_.size() && used_[index]; }

  std::size_t total() const noexcept { return used_.size(); }
  std::size_t free_count() const noexcept { return free_.size(); }
  std::size_t block_bytes() const noexcept { return block_bytes_; }
  std::size_t stride_bytes() const noexcept { return stride_; }

 private:
  block_allocator(std::byte* base, std::size_t block_bytes, std::size_t stride, std::size_t count);

  std::byte* base_;
  std::size_t block_bytes_;
  std::size_t stride_;
  std::vector<std::uint32_t> free_;
  std::vector<bool> used_;
};

}  // namespace mooncaf
