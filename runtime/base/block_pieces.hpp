#pragma once
// Where the bytes of a KV block lie among other blocks in memory: in one piece, or in pieces apart from each
// other. Disk, network and checksums take a block's pieces one after the other.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// Shape of equal blocks that are cut out of one memory. Plain value.
struct block_pieces {
  /// Blocks start at multiples of this where each is one piece, so that direct I/O and vector loads need no
  /// bounce buffer; else groups of blocks do.
  static constexpr std::size_t alignment = 4096;

  std::size_t bytes = 0;     ///< of a piece
  std::uint32_t count = 1;   ///< pieces of a block; >= 1
  std::uint32_t beside = 1;  ///< blocks of a group: first the first pieces of all of them, then the second …

  constexpr block_pieces() = default;
  constexpr block_pieces(std::size_t bytes_of_piece, std::uint32_t pieces = 1, std::uint32_t blocks = 1)
      : bytes(bytes_of_piece), count(pieces), beside(blocks) {}

  constexpr std::size_t block_bytes() const noexcept { return bytes * count; }
  /// Bytes from a piece of a block to its next.
  constexpr std::size_t stride() const noexcept { return bytes * beside; }
  constexpr std::size_t group_bytes() const noexcept {
    return (stride() * count + alignment - 1) / alignment * alignment;
  }
  /// Offset of the first piece of block `index` in the memory.
  constexpr std::size_t offset(std::uint32_t index) const noexcept {
    return index / beside * group_bytes() + index % beside * bytes;
  }
  /// Blocks that memory of so many bytes holds.
  constexpr std::size_t blocks_in(std::size_t memory) const noexcept {
    return memory / group_bytes() * beside;
  }
  /// Memory for so many blocks.
  constexpr std::size_t bytes_for(std::size_t blocks) const noexcept {
    return (blocks + beside - 1) / beside * group_bytes();
  }

  /// Calls `visit(offset, length)` with each run of memory of bytes [at, at + length) of a block; offsets are
  /// from its first piece.
  template <class Visit>
  constexpr void each(std::size_t at, std::size_t length, Visit&& visit) const {
    if (count == 1) return visit(at, length);
    for (const auto end = at + length; at < end;) {
      const auto run = std::min(end - at, bytes - at % bytes);
      visit(at / bytes * stride() + at % bytes, run);
      at += run;
    }
  }

  friend constexpr bool operator==(const block_pieces&, const block_pieces&) noexcept = default;
};

/// `checksum64` of the block's pieces, one after the other.
inline std::uint64_t checksum64(const std::byte* block, const block_pieces& pieces) {
  if (pieces.count == 1) return checksum64({block, pieces.bytes});
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  pieces.each(0, pieces.block_bytes(),
              [&](std::size_t at, std::size_t length) { XXH3_64bits_update(&state, block + at, length); });
  return XXH3_64bits_digest(&state);
}

/// Copies a block's pieces to `out`, one after the other. @param out  `block_bytes()` long.
inline void gather(const std::byte* block, const block_pieces& pieces, std::byte* out) {
  pieces.each(0, pieces.block_bytes(), [&](std::size_t at, std::size_t length) {
    std::memcpy(out, block + at, length);
    out += length;
  });
}

/// … and back.
inline void scatter(const std::byte* in, const block_pieces& pieces, std::byte* block) {
  pieces.each(0, pieces.block_bytes(), [&](std::size_t at, std::size_t length) {
    std::memcpy(block + at, in, length);
    in += length;
  });
}

}  // namespace mooncaf
