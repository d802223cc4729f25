// Sixteen lanes in two registers, for AVX2 with FMA and F16C. A GCC vector of 64 bytes would do as well, but
// lives in memory where registers are narrower.
// A part of simd.hpp, which says what the functions do.

using f8 = float __attribute__((vector_size(32)));
using i8x = std::int32_t __attribute__((vector_size(32)));

struct v16 {
  f8 low, high;
};
struct i16x {
  i8x low, high;
};

using row_part = f8;
constexpr unsigned most_tokens = 6;  ///< whose two sums a plain product keeps in registers

constexpr unsigned row_block = 3;     ///< rows of queries that attention keeps in registers
constexpr unsigned vector_block = 2;  ///< … times so many vectors of keys or values

MOONCAF_INLINE v16 operator+(v16 a, v16 b) { return {a.low + b.low, a.high + b.high}; }
MOONCAF_INLINE v16 operator-(v16 a, v16 b) { return {a.low - b.low, a.high - b.high}; }
MOONCAF_INLINE v16 operator*(v16 a, v16 b) { return {a.low * b.low, a.high * b.high}; }
MOONCAF_INLINE v16 operator/(v16 a, v16 b) { return {a.low / b.low, a.high / b.high}; }
MOONCAF_INLINE v16 operator-(v16 a) { return {-a.low, -a.high}; }
MOONCAF_INLINE i16x operator<(v16 a, v16 b) { return {a.low < b.low, a.high < b.high}; }
MOONCAF_INLINE i16x operator>(v16 a, v16 b) { return b < a; }
MOONCAF_INLINE i16x operator+(i16x a, std::int32_t b) { return {a.low + b, a.high + b}; }
MOONCAF_INLINE i16x operator-(i16x a, std::int32_t b) { return {a.low - b, a.high - b}; }
MOONCAF_INLINE i16x operator*(i16x a, std::int32_t b) { return {a.low * b, a.high * b}; }
MOONCAF_INLINE i16x operator&(i16x a, std::int32_t b) { return {a.low & b, a.high & b}; }
MOONCAF_INLINE i16x operator|(i16x a, i16x b) { return {a.low | b.low, a.high | b.high}; }
MOONCAF_INLINE i16x operator<<(i16x a, int b) { return {a.low << b, a.high << b}; }
MOONCAF_INLINE i16x operator<(i16x a, std::int32_t b) { return {a.low < b, a.high < b}; }

MOONCAF_INLINE v16 load(const float* p) { return {(f8)_mm256_loadu_ps(p), (f8)_mm256_loadu_ps(p + 8)}; }
MOONCAF_INLINE void store(float* p, v16 v) {
  _mm256_storeu_ps(p, (__m256)v.low);
  _mm256_storeu_ps(p + 8, (__m256)v.high);
}
MOONCAF_INLINE v16 splat(float x) { return {(f8)_mm256_set1_ps(x), (f8)_mm256_set1_ps(x)}; }
MOONCAF_INLINE v16 fma(v16 a, v16 b, v16 c) {
  return {(f8)_mm256_fmadd_ps((__m256)a.low, (__m256)b.low, (__m256)c.low),
          (f8)_mm256_fmadd_ps((__m256)a.high, (__m256)b.high, (__m256)c.high)};
}
MOONCAF_INLINE f8 fma(f8 a, f8 b, f8 c) { return (f8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
MOONCAF_INLINE v16 max(v16 a, v16 b) {
  return {(f8)_mm256_max_ps((__m256)a.low, (__m256)b.low), (f8)_mm256_max_ps((__m256)a.high, (__m256)b.high)};
}
MOONCAF_INLINE __m256 low_half(v16 v) { return (__m256)v.low; }
MOONCAF_INLINE __m256 high_half(v16 v) { return (__m256)v.high; }
MOONCAF_INLINE v16 choose(i16x which, v16 a, v16 b) {
  return {which.low ? a.low : b.low, which.high ? a.high : b.high};
}
MOONCAF_INLINE v16 to_float(i16x v) {
  return {__builtin_convertvector(v.low, f8), __builtin_convertvector(v.high, f8)};
}
MOONCAF_INLINE i16x bits_of(v16 v) { return {(i8x)v.low, (i8x)v.high}; }
MOONCAF_INLINE v16 from_bits(i16x v) { return {(f8)v.low, (f8)v.high}; }
MOONCAF_INLINE float first(v16 v) { return v.low[0]; }
MOONCAF_INLINE i16x lane_numbers() {
  return {i8x{0, 1, 2, 3, 4, 5, 6, 7}, i8x{8, 9, 10, 11, 12, 13, 14, 15}};
}
MOONCAF_INLINE i16x rounded(v16 x) {
  return {(i8x)_mm256_cvtps_epi32((__m256)x.low), (i8x)_mm256_cvtps_epi32((__m256)x.high)};
}
MOONCAF_INLINE v16 swap_neighbours(v16 v) {
  return {(f8)_mm256_permute_ps((__m256)v.low, 0xB1), (f8)_mm256_permute_ps((__m256)v.high, 0xB1)};
}
MOONCAF_INLINE v16 load_half(const void* p) {
  const auto* at = static_cast<const __m128i*>(p);
  return {(f8)_mm256_cvtph_ps(_mm_loadu_si128(at)), (f8)_mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}
MOONCAF_INLINE row_part splat_part(float x) { return (f8)_mm256_set1_ps(x); }
MOONCAF_INLINE row_part load_half_part(const void* p) {
  return (f8)_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
MOONCAF_INLINE void load_brain_pairs(const void* p, row_part& even, row_part& odd) {
  const __m256i both = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  even = (f8)_mm256_slli_epi32(both, 16);
  odd = (f8)_mm256_and_si256(both, _mm256_set1_epi32(-65536));
}
MOONCAF_INLINE i16x load_bytes(const void* p) {
  const __m128i all = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {(i8x)_mm256_cvtepi8_epi32(all), (i8x)_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(all, all))};
}

MOONCAF_INLINE i16x load_nibbles(const void* p) {
  const __m256i both = _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  return {(i8x)_mm256_srai_epi32(_mm256_slli_epi32(both, 28), 28),
          (i8x)_mm256_srai_epi32(_mm256_slli_epi32(both, 24), 28)};
}

MOONCAF_INLINE i16x load_pairs(const std::int32_t* p) {
  return {(i8x)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          (i8x)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
MOONCAF_INLINE void store_pairs(std::int32_t* p, i16x v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)v.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), (__m256i)v.high);
}
MOONCAF_INLINE i16x dot2(i16x acc, std::int32_t a, i16x b) {
  const __m256i all = _mm256_set1_epi32(a);
  return {(i8x)_mm256_add_epi32((__m256i)acc.low, _mm256_madd_epi16((__m256i)b.low, all)),
          (i8x)_mm256_add_epi32((__m256i)acc.high, _mm256_madd_epi16((__m256i)b.high, all))};
}

MOONCAF_INLINE void transpose_8(const std::int32_t* rows, std::size_t row_stride, std::int32_t* columns,
                                std::size_t column_stride) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) {
    a[i] =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + static_cast<std::size_t>(i) * row_stride));
  }
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {  // a[i + c] holds columns c and 4 + c of rows i to i + 3
    a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  const auto put = [&](int c, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(columns + static_cast<std::size_t>(c) * column_stride), v);
  };
  for (int c = 0; c < 4; ++c) {
    put(c, _mm256_permute2x128_si256(a[c], a[4 + c], 0x20));
    put(4 + c, _mm256_permute2x128_si256(a[c], a[4 + c], 0x31));
  }
}

MOONCAF_INLINE void transpose(const std::int32_t* rows, std::size_t row_stride, std::int32_t* columns,
                              std::size_t column_stride) {
  for (std::size_t r = 0; r < 16; r += 8) {
    for (std::size_t c = 0; c < 16; c += 8)
      transpose_8(rows + r * row_stride + c, row_stride, columns + c * column_stride + r, column_stride);
  }
}
