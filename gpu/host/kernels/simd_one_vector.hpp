// Sixteen lanes as one GCC vector: what AVX-512 and the portable kernels have in common.
// A part of simd.hpp, which says what the functions do.

using v16 = float __attribute__((vector_size(64)));
using i16x = std::int32_t __attribute__((vector_size(64)));

MOONCAF_INLINE v16 choose(i16x which, v16 a, v16 b) { return which ? a : b; }
MOONCAF_INLINE v16 to_float(i16x v) { return __builtin_convertvector(v, v16); }
MOONCAF_INLINE i16x bits_of(v16 v) { return (i16x)v; }
MOONCAF_INLINE v16 from_bits(i16x v) { return (v16)v; }
MOONCAF_INLINE float first(v16 v) { return v[0]; }
MOONCAF_INLINE i16x lane_numbers() { return i16x{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
