// Sixteen f32 lanes and what the kernels do with them.
// A body of kernel_set.hpp, compiled once per instruction set: no include guard, no namespace of its own.

using v16 = float __attribute__((vector_size(64)));
using i16x = std::int32_t __attribute__((vector_size(64)));
using u32x = std::uint32_t __attribute__((vector_size(64)));
using u16x16 = std::uint16_t __attribute__((vector_size(32)));
using u8x64 = std::uint8_t __attribute__((vector_size(64)));

#define MOONCAF_INLINE inline __attribute__((always_inline))

MOONCAF_INLINE v16 load(const float* p) {
  v16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
MOONCAF_INLINE void store(float* p, v16 v) { std::memcpy(p, &v, sizeof v); }
MOONCAF_INLINE v16 splat(float x) { return v16{} + x; }

MOONCAF_INLINE v16 fma(v16 a, v16 b, v16 c) {
#if defined(__AVX512F__)
  return (v16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  __m256 al, ah, bl, bh, cl, ch;
  std::memcpy(&al, &a, 32);
  std::memcpy(&ah, reinterpret_cast<const char*>(&a) + 32, 32);
  std::memcpy(&bl, &b, 32);
  std::memcpy(&bh, reinterpret_cast<const char*>(&b) + 32, 32);
  std::memcpy(&cl, &c, 32);
  std::memcpy(&ch, reinterpret_cast<const char*>(&c) + 32, 32);
  cl = _mm256_fmadd_ps(al, bl, cl);
  ch = _mm256_fmadd_ps(ah, bh, ch);
  std::memcpy(&c, &cl, 32);
  std::memcpy(reinterpret_cast<char*>(&c) + 32, &ch, 32);
  return c;
#else
  return a * b + c;
#endif
}

/// Sum of the lanes by a fixed tree: lanes 8 apart, then 4, 2, 1.
MOONCAF_INLINE float sum(v16 v) {
#if defined(__AVX__)
  __m256 low, high;
  std::memcpy(&low, &v, 32);
  std::memcpy(&high, reinterpret_cast<const char*>(&v) + 32, 32);
  low = _mm256_add_ps(low, high);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
  float f[16];
  std::memcpy(f, &v, sizeof f);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) f[i] += f[i + width];
  }
  return f[0];
#endif
}

MOONCAF_INLINE float largest(v16 v) {
#if defined(__AVX__)
  __m256 low, high;
  std::memcpy(&low, &v, 32);
  std::memcpy(&high, reinterpret_cast<const char*>(&v) + 32, 32);
  low = _mm256_max_ps(low, high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
#else
  float f[16];
  std::memcpy(f, &v, sizeof f);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) f[i] = f[i] > f[i + width] ? f[i] : f[i + width];
  }
  return f[0];
#endif
}

MOONCAF_INLINE v16 max(v16 a, v16 b) {
#if defined(__AVX512F__)
  return (v16)_mm512_max_ps((__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}

MOONCAF_INLINE v16 magnitude(v16 v) { return (v16)((i16x)v & 0x7FFFFFFF); }

/// Sixteen halves as floats.
MOONCAF_INLINE v16 load_half(const void* p) {
#if defined(__AVX512F__)
  return (v16)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  const __m256 low = _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256 high = _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p) + 1));
  v16 v;
  std::memcpy(&v, &low, 32);
  std::memcpy(reinterpret_cast<char*>(&v) + 32, &high, 32);
  return v;
#else
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
#endif
}

/// e^x with a relative error below 2e-7; exactly 0 for x below -87.3, minus infinity included.
MOONCAF_INLINE v16 exponential(v16 x) {
  const i16x low = x < splat(-87.3f);
  x = low ? splat(-87.3f) : x;
  x = x > splat(88.3f) ? splat(88.3f) : x;
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
  const i16x exponent = (__builtin_convertvector(n, i16x) + 127) << 23;
  v16 power;
  std::memcpy(&power, &exponent, sizeof power);
  const v16 y = p * power;
  return low ? v16{} : y;
}

/// The nearest integers; |x| below 2^22.
MOONCAF_INLINE i16x rounded(v16 x) {
#if defined(__AVX512F__)
  return (i16x)_mm512_cvtps_epi32((__m512)x);
#else
  const v16 shifted = x + splat(12582912.0f);  // 1.5 * 2^23: its low mantissa bits are the integer
  i16x bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  return bits - 0x4B400000;
#endif
}

/// 2^x for x <= 0, with a relative error below 1e-7; exactly 0 below -126, minus infinity included.
MOONCAF_INLINE v16 power_of_two(v16 x) {
#if defined(__AVX512F__)
  const v16 n = (v16)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const v16 r = (v16)_mm512_maskz_sub_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ),
                                         (__m512)x, (__m512)n);
#else
  const i16x small = x < splat(-126.0f);
  x = small ? splat(-126.0f) : x;
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
  const i16x exponent = (rounded(n) + 127) << 23;
  v16 power;
  std::memcpy(&power, &exponent, sizeof power);
  const v16 y = p * power;
  return small ? v16{} : y;
#endif
}

// ---- pairs of 16-bit integers: one in the low, one in the high half of each 32-bit lane ----

MOONCAF_INLINE i16x pair(i16x low, i16x high) { return (low & 0xFFFF) | (i16x)((u32x)high << 16); }

MOONCAF_INLINE i16x load_pairs(const std::int32_t* p) {
  i16x v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
MOONCAF_INLINE void store_pairs(std::int32_t* p, i16x v) { std::memcpy(p, &v, sizeof v); }

/// acc += a.low * b.low + a.high * b.high in every lane, where all lanes of a are `a`.
MOONCAF_INLINE i16x dot2(i16x acc, std::int32_t a, i16x b) {
#if defined(__AVX512VNNI__)
  return (i16x)_mm512_dpwssd_epi32((__m512i)acc, _mm512_set1_epi32(a), (__m512i)b);
#elif defined(__AVX2__)
  const __m256i all = _mm256_set1_epi32(a);
  __m256i low, high;
  std::memcpy(&low, &b, 32);
  std::memcpy(&high, reinterpret_cast<const char*>(&b) + 32, 32);
  low = _mm256_madd_epi16(low, all);
  high = _mm256_madd_epi16(high, all);
  std::memcpy(&b, &low, 32);
  std::memcpy(reinterpret_cast<char*>(&b) + 32, &high, 32);
  return acc + b;
#else
  const i16x low = (i16x)((u32x)b << 16) >> 16;
  return acc + low * static_cast<std::int16_t>(a) + (b >> 16) * (a >> 16);
#endif
}

/// columns[c][r] = rows[r][c]; rows `row_stride` and columns `column_stride` words apart.
MOONCAF_INLINE void transpose(const std::int32_t* rows, std::size_t row_stride, std::int32_t* columns,
                              std::size_t column_stride) {
#if defined(__AVX512F__)
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
#else
  for (std::size_t c = 0; c < 16; ++c) {
    for (std::size_t r = 0; r < 16; ++r) columns[c * column_stride + r] = rows[r * row_stride + c];
  }
#endif
}
