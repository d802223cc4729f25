#include "storage/block_allocator.hpp"

#include <limits>
#include <string>

namespace mooncaf {

result<block_allocator> block_allocator::create(std::span<std::byte> memory, std::size_t block_bytes) {
  if (block_bytes == 0) return fail(ec::invalid_argument, "a block needs at least one byte");
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignment != 0) {
    return fail(ec::invalid_argument, "memory for blocks must start at a multiple of 4096");
  }
  if (block_bytes > memory.size()) {
    return fail(ec::invalid_argument, "an arena of " + std::to_string(memory.size()) +
                                          " bytes holds not one block of " + std::to_string(block_bytes));
  }
  const std::size_t stride = (block_bytes + alignment - 1) / alignment * alignment;
  const std::size_t count = memory.size() / stride;
  if (count == 0 || count >= std::numeric_limits<std::uint32_t>::max()) {
    return fail(ec::invalid_argument, "an arena of " + std::to_string(memory.size()) + " bytes makes " +
                                          std::to_string(count) + " slots of " + std::to_string(stride) +
                                          " bytes; 1 to 2^32-2 are possible");
  }
  return block_allocator{memory.data(), block_bytes, stride, count};
}

block_allocator::block_allocator(std::byte* base, std::size_t block_bytes, std::size_t stride,
                                 std::size_t count)
    : base_(base), block_bytes_(block_bytes), stride_(stride), used_(count, false) {
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
  const std::uint64_t offset = std::uint64_t{index} * stride_;
  return {index, offset, base_ + offset};
}

}  // namespace mooncaf
