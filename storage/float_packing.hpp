#pragma once
// 16-bit floating-point numbers in fewer bytes, every bit kept: for disks, where bytes are dearer than cycles.
//
// Of the numbers of a tensor nearly all share a few exponents; signs and mantissas are noise. So a chunk of 8,192 numbers
// names its seven most frequent exponents, and each number says in three bits which one it has, or that it has another.
// ```
//   packing   kind (1: BF16, 2: F16), bytes before the first number (0 or 1), those bytes; chunks; what is left, as it was
//   chunk     7 exponents, how many numbers have another (2 bytes; 65535: the chunk's numbers follow as they were),
//             signs and mantissas (BF16: a byte each; F16: a byte each and three planes of bits), three planes of bits with
//             the codes, and the other exponents, a byte each
// ```
// Little-endian; a plane has bit i of its numbers in number i's place. BF16 keys and values come out at 0.71 to 0.73 of their
// length, F16 ones at 0.9 (tests/bench/README.md); what has no such numbers is found out by a look at a few of them.

#include <cstddef>
#include <span>

namespace mooncaf {

/// @thread  Pure functions.
namespace float_packing {

/// Whether the processor has the instructions that make it fast.
bool has_avx2();

/// Room that `pack` needs.
std::size_t bound(std::size_t bytes);

/// @param to  of `bound` bytes; does not overlap.
/// @param fast  with those instructions; the packing is the same.
/// @returns length of the packing; 0: it would save less than a sixteenth, and what is in `to` is of no use.
/// @cost  some microseconds where it does not pay; else about a byte in a fifth of a nanosecond with AVX2.
std::size_t pack(std::span<const std::byte> from, std::span<std::byte> to, bool fast = has_avx2());

/// Takes any bytes. @returns whether they are a packing of so many bytes as `to` has, which it then holds.
bool unpack(std::span<const std::byte> from, std::span<std::byte> to, bool fast = has_avx2());

}  // namespace float_packing
}  // namespace mooncaf
