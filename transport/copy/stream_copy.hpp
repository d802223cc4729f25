#pragma once
// Copying bytes that this processor will not look at again, and their checksum, in one pass over the source.
//
// Non-temporal stores skip the read of the target's old lines and leave the caches to other data: for data
// larger than the caches they copy 1.5 to 2 times faster than memcpy. The checksum rides along: xxh3 costs a
// few cycles per line while the copy waits for memory.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mooncaf {

/// Copies `n` bytes; the ranges must not overlap. Any alignment; fastest where `to` is 64-byte aligned.
/// The bytes become visible to other processors in order only after `fence_streamed_stores`.
void stream_copy(void* to, const void* from, std::size_t n) noexcept;
/// The same, and @returns `checksum64` (xxh3-64) of the bytes.
std::uint64_t stream_copy_checksum(void* to, const void* from, std::size_t n) noexcept;
/// The same with ordinary stores, for bytes that this processor looks at next: they are in its caches. Every
/// byte is loaded once, so the checksum is that of the stored bytes even if the source changes meanwhile.
std::uint64_t near_copy_checksum(void* to, const void* from, std::size_t n) noexcept;
/// `checksum64` of `n` bytes with the widest vectors of this processor.
std::uint64_t wide_checksum(const void* from, std::size_t n) noexcept;
/// The same of bytes that are in no cache, asking memory for four places at once. Where another core reads
/// the same bytes at the same time `wide_checksum` is faster: each core uses lines that the other has asked
/// for.
std::uint64_t cold_checksum(const void* from, std::size_t n) noexcept;
/// The state of a copy that is made part by part, as its bytes come. Begins empty.
struct copy_in_parts {
  alignas(64) std::uint64_t sums[8] = {};
  std::uint64_t bytes = 0;  ///< copied so far
};
/// Copies as much of a further part as can be hashed before it is known whether there is more: all but 64 to
/// 1,087 bytes, or nothing of less. The rest comes again, before the next part.
/// @returns the bytes that were copied.
std::size_t stream_copy_part(copy_in_parts& state, void* to, const void* from, std::size_t n) noexcept;
/// Copies the last part. @param n  no less than 64 unless it is all there is.
/// @returns `checksum64` of all bytes.
std::uint64_t stream_copy_last(copy_in_parts& state, void* to, const void* from, std::size_t n) noexcept;
/// Orders streamed stores before every later store; to be called before their completion is published.
void fence_streamed_stores() noexcept;

/// One implementation of these, chosen once per process.
struct copy_kernels {
  std::string_view isa;
  void (*copy)(void*, const void*, std::size_t) noexcept;
  std::uint64_t (*copy_checksum)(void*, const void*, std::size_t) noexcept;
  std::uint64_t (*near_copy_checksum)(void*, const void*, std::size_t) noexcept;
  std::uint64_t (*checksum)(const void*, std::size_t) noexcept;
  std::size_t (*copy_part)(copy_in_parts&, void*, const void*, std::size_t) noexcept;
  std::uint64_t (*copy_last)(copy_in_parts&, void*, const void*, std::size_t) noexcept;
  std::uint64_t (*cold_checksum)(const void*, std::size_t) noexcept;
};
/// All that this processor can run, best first; tests compare them.
struct copy_kernel_list {
  copy_kernels items[3];
  std::size_t count = 0;
};
copy_kernel_list available_copy_kernels() noexcept;

}  // namespace mooncaf
