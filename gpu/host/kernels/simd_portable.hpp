// Sixteen lanes as the compiler sees fit, for any processor.
// A part of simd.hpp, which says what the functions do.

#include "gpu/host/kernels/simd_one_vector.hpp"
using u32x = std::uint32_t __attribute__((vector_size(64)));

using row_part = v16;
constexpr unsigned most_tokens = 4;  ///< whose two sums a plain product keeps near

constexpr unsigned row_block = 1;     ///< rows of queries that attention keeps in registers
constexpr unsigned vector_block = 4;  ///< … times so many vectors of keys or values

MOONCAF_INLINE v16 load(const float* p) {
  v16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
MOONCAF_INLINE void store(float* p, v16 v) { std::memcpy(p, &v, sizeof v); }
MOONCAF_INLINE v16 splat(float x) { return v16{} + x; }
MOONCAF_INLINE v16 fma(v16 a, v16 b, v16 c) { return a * b + c; }
MOONCAF_INLINE v16 max(v16 a, v16 b) { return a > b ? a : b; }
MOONCAF_INLINE i16x rounded(v16 x) {
  const v16 shifted = x + splat(12582912.0f);  // 1.5 * 2^23: its low mantissa bits are the integer
  return (i16x)((u32x)shifted - 0x4B400000u);
}
MOONCAF_INLINE v16 swap_neighbours(v16 v) {
  v16 w;
  for (int i = 0; i < 16; ++i) w[i] = v[i ^ 1];
  return w;
}
MOONCAF_INLINE v16 load_half(const void* p) {
  float f[16];
  std::uint16_t h[16];
  std::memcpy(h, p, sizeof h);
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t sign = (h[i] & 0x8000u) << 16, exponent = h[i] >> 10 & 31, mantissa = h[i] & 1023u;
    const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
    const std::uint32_t bits =
        sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | mantissa << 13;
    std::memcpy(&f[i], &bits, 4);
    if (exponent == 0) f[i] = sign ? -tiny : tiny;
  }
  return load(f);
}
MOONCAF_INLINE row_part splat_part(float x) { return splat(x); }
MOONCAF_INLINE row_part load_half_part(const void* p) { return load_half(p); }
MOONCAF_INLINE void load_brain_pairs(const void* p, row_part& even, row_part& odd) {
  u32x both;
  std::memcpy(&both, p, sizeof both);
  even = (row_part)(both << 16);
  odd = (row_part)(both & 0xFFFF0000u);
}
MOONCAF_INLINE i16x load_bytes(const void* p) {
  std::int8_t bytes[16];
  std::memcpy(bytes, p, sizeof bytes);
  i16x v;
  for (int i = 0; i < 16; ++i) v[i] = bytes[i];
  return v;
}

MOONCAF_INLINE i16x load_nibbles(const void* p) {
  std::uint8_t bytes[8];
  std::memcpy(bytes, p, sizeof bytes);
  i16x v;
  for (int i = 0; i < 16; ++i) v[i] = ((i < 8 ? bytes[i] & 15 : bytes[i - 8] >> 4) ^ 8) - 8;
  return v;
}

MOONCAF_INLINE i16x load_pairs(const std::int32_t* p) {
  i16x v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
MOONCAF_INLINE void store_pairs(std::int32_t* p, i16x v) { std::memcpy(p, &v, sizeof v); }
MOONCAF_INLINE i16x dot2(i16x acc, std::int32_t a, i16x b) {
  const i16x low = (i16x)((u32x)b << 16) >> 16;
  // Unsigned: lanes that hold no key add up to anything.
  const u32x products = (u32x)(low * static_cast<std::int16_t>(a)) + (u32x)((b >> 16) * (a >> 16));
  return (i16x)((u32x)acc + products);
}

MOONCAF_INLINE void transpose(const std::int32_t* rows, std::size_t row_stride, std::int32_t* columns,
                              std::size_t column_stride) {
  for (std::size_t c = 0; c < 16; ++c) {
    for (std::size_t r = 0; r < 16; ++r) columns[c * column_stride + r] = rows[r * row_stride + c];
  }
}
