// Sixteen lanes in one register, for AVX-512 with VNNI.
// A part of simd.hpp, which says what the functions do.

#include "gpu/host/kernels/simd_one_vector.hpp"

using row_part = v16;
constexpr unsigned most_tokens = 12;  ///< whose two sums a plain product keeps in registers

constexpr unsigned row_block = 6;     ///< rows of queries that attention keeps in registers
constexpr unsigned vector_block = 4;  ///< … times so many vectors of keys or values

MOONCAF_INLINE v16 load(const float* p) { return (v16)_mm512_loadu_ps(p); }
MOONCAF_INLINE void store(float* p, v16 v) { _mm512_storeu_ps(p, (__m512)v); }
MOONCAF_INLINE v16 splat(float x) { return (v16)_mm512_set1_ps(x); }
MOONCAF_INLINE v16 fma(v16 a, v16 b, v16 c) { return (v16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
MOONCAF_INLINE v16 max(v16 a, v16 b) { return (v16)_mm512_max_ps((__m512)a, (__m512)b); }
MOONCAF_INLINE __m256 low_half(v16 v) { return _mm512_castps512_ps256((__m512)v); }
MOONCAF_INLINE __m256 high_half(v16 v) { return _mm512_extractf32x8_ps((__m512)v, 1); }
MOONCAF_INLINE i16x rounded(v16 x) { return (i16x)_mm512_cvtps_epi32((__m512)x); }
MOONCAF_INLINE v16 swap_neighbours(v16 v) { return (v16)_mm512_permute_ps((__m512)v, 0xB1); }
MOONCAF_INLINE v16 load_half(const void* p) {
  return (v16)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
MOONCAF_INLINE void load_brain_pairs(const void* p, row_part& even, row_part& odd) {
  const __m512i both = _mm512_loadu_si512(p);
  even = (row_part)_mm512_slli_epi32(both, 16);
  odd = (row_part)_mm512_and_si512(both, _mm512_set1_epi32(-65536));
}
MOONCAF_INLINE row_part splat_part(float x) { return splat(x); }
MOONCAF_INLINE row_part load_half_part(const void* p) { return load_half(p); }
MOONCAF_INLINE i16x load_bytes(const void* p) {
  return (i16x)_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

MOONCAF_INLINE i16x load_nibbles(const void* p) {
  const __m128i eight = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  const __m512i twice = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(eight, eight));
  const __m512i to_top = _mm512_inserti64x4(_mm512_set1_epi32(24), _mm256_set1_epi32(28), 0);
  return (i16x)_mm512_srai_epi32(_mm512_sllv_epi32(twice, to_top), 28);
}

MOONCAF_INLINE i16x load_pairs(const std::int32_t* p) { return (i16x)_mm512_loadu_si512(p); }
MOONCAF_INLINE void store_pairs(std::int32_t* p, i16x v) { _mm512_storeu_si512(p, (__m512i)v); }
MOONCAF_INLINE i16x dot2(i16x acc, std::int32_t a, i16x b) {
  return (i16x)_mm512_dpwssd_epi32((__m512i)acc, _mm512_set1_epi32(a), (__m512i)b);
}

MOONCAF_INLINE void transpose(const std::int32_t* rows, std::size_t row_stride, std::int32_t* columns,
                              std::size_t column_stride) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows + static_cast<std::size_t>(i) * row_stride);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {  // a[4 q + i] holds columns i, 4 + i, 8 + i, 12 + i of rows 4 q to 4 q + 3
    const __m512i even_low = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88),
                  odd_low = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xDD);
    const __m512i even_high = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xDD);
    const auto put = [&](int c, __m512i v) {
      _mm512_storeu_si512(columns + static_cast<std::size_t>(c) * column_stride, v);
    };
    put(i, _mm512_shuffle_i32x4(even_low, even_high, 0x88));
    put(4 + i, _mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
    put(8 + i, _mm512_shuffle_i32x4(even_low, even_high, 0xDD));
    put(12 + i, _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD));
  }
}
