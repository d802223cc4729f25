#pragma once
// A KV block in the parts in which a disk gives it back: runs of whole layers, the first ones first.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mooncaf {

/// Layers of one part: as many as make a read that a disk does at full speed, and no more than a sixteenth of
/// the block, since every part has a key and a header. All layers, where that is one part.
constexpr std::uint32_t layers_per_part(std::size_t layer_bytes, std::uint32_t layers) noexcept {
  constexpr std::size_t full_speed = 256u << 10;
  constexpr std::uint32_t most_parts = 16;
  const auto fast = static_cast<std::uint32_t>(
      std::min<std::size_t>(layers, (full_speed + layer_bytes - 1) / std::max<std::size_t>(1, layer_bytes)));
  return std::max({1u, fast, (layers + most_parts - 1) / most_parts});
}

/// Byte ranges of the parts of a block.
struct block_parts {
  std::size_t block_bytes = 0;
  std::size_t part_bytes = 0;  ///< of all but the last, which may be shorter

  constexpr std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>((block_bytes + part_bytes - 1) / part_bytes);
  }
  constexpr std::size_t offset(std::uint32_t part) const noexcept { return part * part_bytes; }
  constexpr std::size_t length(std::uint32_t part) const noexcept {
    return std::min(part_bytes, block_bytes - offset(part));
  }
};

}  // namespace mooncaf
