#pragma once
// The header before a block's bytes on disk: enough to refuse any other block than the one asked for.
// ```
//    0  magic "mooncafB"          16  fingerprint (16)      64  length of the block in bytes
//    8  version (4)               32  key (16)              72  checksum64 of the block
//   12  depth (4)                 48  parent's key (16)     80  number of the write, from 1
//                                                           88  which part of the block (4), of how many (4)
//                                                           96  checksum64 of the 96 bytes before
// ```
// Little-endian; 104 bytes. Version 1 had blocks in one piece; version 3 is 2 of bytes that `float_packing` made. Keys in the database are 16 bytes big-endian,
// so that listings sort as they print; the key of a block's part ends with the part's number.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/block_name.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// Header of a block on disk.
struct block_record {
  static constexpr std::size_t size_bytes = 104;
  static constexpr std::uint32_t version = 2, version_packed = 3;

  hash128 fingerprint;  ///< model, weights, dtype and layout
  block_name name;
  std::uint64_t length_bytes = 0;
  std::uint64_t checksum = 0;
  std::uint64_t written = 0;  ///< grows with every write of a tier: the order of the blobs on disk
  std::uint32_t part = 0, parts = 1;
  bool packed = false;  ///< these bytes are; length and checksum are of the block as it was

  friend bool operator==(const block_record&, const block_record&) = default;

  std::array<std::byte, size_bytes> encode() const noexcept;
  /// Accepts any bytes. @error `ec::corrupt` for a short, foreign or damaged header, `ec::incompatible` for
  /// another version; the detail says which field.
  static result<block_record> decode(std::span<const std::byte> bytes);
};

/// Database key of a block.
std::array<char, 16> encode_key(const block_key& key) noexcept;
/// Database key of a part of it. @pre part < 65536
std::array<char, 18> encode_key(const block_key& key, std::uint32_t part) noexcept;

}  // namespace mooncaf
