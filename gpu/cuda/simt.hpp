#pragma once
// The language that kernels are written in: CUDA where nvcc compiles them, plain C++ under the harness of
// tests/support/simt everywhere else. A kernel uses these functions and nothing else of either.
//
// A kernel has one parameter, a plain struct, and as many threads per block as its declaration says, a
// multiple of 32. Barriers and warp functions are for all threads of the block or warp: there are no masks.
// Memory that threads share comes from MOONCAF_SHARED alone. Where a multiply-add is fused is written down
// (`fused`), never left to a compiler: two kernels that must agree on every bit say the same. Atomic sums are
// of integers in shared memory, so that their order does not matter.

#include <cstddef>
#include <cstdint>

namespace mooncaf::simt {

/// Sixteen bytes that move as one. Addresses are multiples of 16.
struct alignas(16) words4 {
  std::uint32_t w[4];
};
struct alignas(8) words2 {
  std::uint32_t w[2];
};

inline constexpr unsigned warp_threads = 32;

}  // namespace mooncaf::simt

#if defined(__CUDACC__)
#include "gpu/cuda/simt_nvcc.hpp"
#else
#include "gpu/cuda/simt_plain.hpp"
#endif

namespace mooncaf::simt {

/// Two numbers as f16, round to nearest even; the first in the low half, as fragments have them.
MOONCAF_DEVICE std::uint32_t pack_half2(float low, float high) {
  return std::uint32_t{half_bits(low)} | std::uint32_t{half_bits(high)} << 16;
}

/// cap·tanh(x / cap).
MOONCAF_DEVICE float capped(float x, float cap) { return cap - 2 * cap / (exponential(2 / cap * x) + 1); }

MOONCAF_DEVICE float bfloat_value(std::uint16_t bits) { return float_from_bits(std::uint32_t{bits} << 16); }

/// The value in all lanes, whatever the order of lanes: every lane adds the same pairs.
MOONCAF_DEVICE float warp_sum(float x) {
  for (unsigned mask = 16; mask != 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
MOONCAF_DEVICE float warp_max(float x) {
  for (unsigned mask = 16; mask != 0; mask /= 2) x = larger(x, shuffle_xor(x, mask));
  return x;
}

}  // namespace mooncaf::simt
