#pragma once
// Cuts a span of memory into equal slots, one KV block each.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/block_pieces.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Place of one KV block in an arena. Plain value; gives no right to use it.
struct slot_ref {
  std::uint32_t index = 0;
  std::uint64_t offset = 0;      ///< bytes from the base of the arena; remote peers use it
  std::byte* address = nullptr;  ///< in this process; the first piece of a block in pieces, as `offset`

  friend bool operator==(const slot_ref&, const slot_ref&) noexcept = default;
};

/// Fixed-size slots with O(1) allocate and free, last freed first used (its pages are resident and its lines
/// warm). Does not own the memory and never reads or writes it. @thread not synchronised.
class block_allocator {
 public:
  static constexpr std::size_t alignment = block_pieces::alignment;

  /// @param memory  aligned to `alignment`; only whole slots are used, of blocks in pieces whole groups.
  /// @param shape   of one block, e.g. `kv_layout::pieces()`.
  /// @error `ec::invalid_argument` if not one slot fits, more than 2^32-2 do, or the memory is not aligned.
  static result<block_allocator> create(std::span<std::byte> memory, const block_pieces& shape);

  /// A free slot, or nothing when all are taken.
  std::optional<slot_ref> allocate();
  /// @error `ec::invalid_argument` for an index out of range, `ec::internal` for a slot that is free already.
  result<void> free(std::uint32_t index);

  slot_ref at(std::uint32_t index) const noexcept;
  bool allocated(std::uint32_t index) const noexcept { return index < used_.size() && used_[index]; }

  std::size_t total() const noexcept { return used_.size(); }
  std::size_t free_count() const noexcept { return free_.size(); }
  const block_pieces& shape() const noexcept { return shape_; }

 private:
  block_allocator(std::byte* base, const block_pieces& shape, std::size_t count);

  std::byte* base_;
  block_pieces shape_;
  std::vector<std::uint32_t> free_;
  std::vector<bool> used_;
};

}  // namespace mooncaf
