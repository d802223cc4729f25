#include "storage/block_allocator.hpp"

#include <limits>
#include <string>

namespace mooncaf {

result<block_allocator> block_allocator::create(std::span<std::byte> memory, const block_pieces& shape) {
  if (shape.block_bytes() == 0) return fail(ec::invalid_argument, "a block needs at least one byte");
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignment != 0) {
    return fail(ec::invalid_argument, "memory for blocks must start at a multiple of 4096");
  }
  // Before anything is rounded up, which could overflow.
  if (shape.block_bytes() > memory.size() || shape.group_bytes() > memory.size()) {
    const auto blocks =
        shape.beside == 1 ? "not one block" : "not " + std::to_string(shape.beside) + " blocks";
    return fail(ec::invalid_argument, "an arena of " + std::to_string(memory.size()) + " bytes holds " +
                                          blocks + " of " + std::to_string(shape.block_bytes()));
  }
  const std::size_t count = shape.blocks_in(memory.size());
  if (count == 0 || count >= std::numeric_limits<std::uint32_t>::max()) {
    return fail(ec::invalid_argument,
                "an arena of " + std::to_string(memory.size()) + " bytes makes " + std::to_string(count) +
                    " slots of " + std::to_string(shape.block_bytes()) + " bytes; 1 to 2^32-2 are possible");
  }
  return block_allocator{memory.data(), shape, count};
}

block_allocator::block_allocator(std::byte* base, const block_pieces& shape, std::size_t count)
    : base_(base), shape_(shape), used_(count, false) {
  free_.reserve(count);
  for (std::size_t i = count; i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
}

std::optional<slot_ref> block_allocator::allocate() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  used_[index] = true;
  return at(index);
}

result<void> block_allocator::free(std::uint32_t index) {
  if (index >= used_.size()) {
    return fail(ec::invalid_argument,
                "slot " + std::to_string(index) + " of " + std::to_string(used_.size()) + " does not exist");
  }
  if (!used_[index]) return fail(ec::internal, "slot " + std::to_string(index) + " was freed twice");
  used_[index] = false;
  free_.push_back(index);
  return {};
}

slot_ref block_allocator::at(std::uint32_t index) const noexcept {
  const std::uint64_t offset = shape_.offset(index);
  return {index, offset, base_ + offset};
}

}  // namespace mooncaf
