// Sixteen f32 lanes (`v16`) or 32-bit integers (`i16x`) and what the kernels do with them.
// A body of kernel_set.hpp, compiled once per instruction set: no include guard, no namespace of its own.
//
// Besides the operators, each instruction set has
//
//   load, store, splat, fma, max                   max(a, NaN) is NaN, max(NaN, b) is b
//   choose(mask, a, b)                             lane by lane
//   to_float, rounded                              to and from integers; the nearest one, for |x| below 2^22
//   bits_of, from_bits                             the same bits
//   first, lane_numbers                            lane 0; 0 to 15
//   swap_neighbours                                lanes 2 i and 2 i + 1 exchanged
//   load_half                                      sixteen f16 as floats
//   row_part, most_tokens                          what a plain product keeps in one register: all sixteen rows of a
//                                                  tile, or eight; and the tokens that it takes at once
//   load_half_part                                 a part's f16 as floats
//   load_brain_pairs(p, even, odd)                 a part's bf16 of two columns, which lie in pairs, as floats
//   load_bytes                                     sixteen signed bytes as integers
//   load_nibbles                                   integers of 4 bits: the low halves of eight bytes, then the high ones
//   load_pairs, store_pairs                        pairs of 16-bit integers, one in each half of a lane
//   dot2(acc, a, b)                                acc + a.low * b.low + a.high * b.high, where every lane of
//   a
//                                                  is `a`; modulo 2^32
//   transpose(rows, stride, columns, stride)       columns[c][r] = rows[r][c], 16 by 16; strides in words

#define MOONCAF_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include "gpu/host/kernels/simd_avx512.hpp"
#elif defined(__AVX2__)
#include "gpu/host/kernels/simd_avx2.hpp"
#else
#include "gpu/host/kernels/simd_portable.hpp"
#endif

/// Sum of the lanes by a fixed tree: lanes 8 apart, then 4, 2, 1.
MOONCAF_INLINE float sum(v16 v) {
#if defined(__AVX2__)
  const __m256 eight = _mm256_add_ps(low_half(v), high_half(v));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
  float f[16];
  store(f, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) f[i] += f[i + width];
  }
  return f[0];
#endif
}

MOONCAF_INLINE float largest(v16 v) {
#if defined(__AVX2__)
  const __m256 eight = _mm256_max_ps(low_half(v), high_half(v));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
#else
  float f[16];
  store(f, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) f[i] = f[i] > f[i + width] ? f[i] : f[i + width];
  }
  return f[0];
#endif
}

MOONCAF_INLINE v16 magnitude(v16 v) { return from_bits(bits_of(v) & 0x7FFFFFFF); }

/// The halves of a pair, each below 2^15 in magnitude.
MOONCAF_INLINE i16x pair(i16x low, i16x high) { return (low & 0xFFFF) | (high << 16); }

/// e^x with a relative error below 2e-7; exactly 0 for x below -87.3, minus infinity included.
MOONCAF_INLINE v16 exponential(v16 x) {
  const i16x low = x < splat(-87.3f);
  x = choose(low, splat(-87.3f), x);
  x = choose(x > splat(88.3f), splat(88.3f), x);
  const v16 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  const v16 n = fma(x, splat(1.44269504088896341f), magic) - magic;
  v16 r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  v16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  return choose(low, v16{}, p * from_bits((rounded(n) + 127) << 23));
}

/// cap·tanh(x / cap).
MOONCAF_INLINE v16 capped(v16 x, float cap) {
  const v16 e = exponential(x * splat(2.0f / cap));
  return splat(cap) - splat(2.0f * cap) / (e + splat(1.0f));
}

/// 2^x for x <= 0, with a relative error below 1e-7; exactly 0 below -126, minus infinity included.
MOONCAF_INLINE v16 power_of_two(v16 x) {
#if defined(__AVX512F__)
  const v16 n = (v16)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const v16 r = (v16)_mm512_maskz_sub_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ),
                                         (__m512)x, (__m512)n);
#else
  const i16x small = x < splat(-126.0f);
  x = choose(small, splat(-126.0f), x);
  const v16 n = x + splat(12582912.0f) - splat(12582912.0f);
  const v16 r = x - n;
#endif
  v16 p = splat(1.535336188319500e-4f);  // Taylor series of 2^r up to r^6, |r| <= 1/2
  p = fma(p, r, splat(1.339887440266574e-3f));
  p = fma(p, r, splat(9.618437357674640e-3f));
  p = fma(p, r, splat(5.550332471162809e-2f));
  p = fma(p, r, splat(2.402264791363012e-1f));
  p = fma(p, r, splat(6.931472028550421e-1f));
  p = fma(p, r, splat(1.0f));
#if defined(__AVX512F__)
  return (v16)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)n, _mm512_set1_ps(-126.0f), _CMP_GE_OQ),
                                     (__m512)p, (__m512)n);
#else
  return choose(small, v16{}, p * from_bits((rounded(n) + 127) << 23));
#endif
}
