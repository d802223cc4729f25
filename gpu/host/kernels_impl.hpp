// The kernels themselves. Included by kernels_portable.cpp, kernels_avx2.cpp and kernels_avx512.cpp, each compiled for
// its instruction set with MOONCAF_KERNELS naming the namespace. No include guard: it is a body, not an interface.
//
// Sixteen f32 lanes are one GCC vector; the compiler splits it where registers are narrower. Multiply-adds are written
// out (`fma`), because contraction left to the compiler may differ between the instances of one template, and with it
// the last bit of a sum.

#include "gpu/host/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wpsabi"

namespace mooncaf::MOONCAF_KERNELS {

namespace {

using v16 = float __attribute__((vector_size(64)));
using i16x = std::int32_t __attribute__((vector_size(64)));
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

/// Sum of the lanes by a fixed tree.
MOONCAF_INLINE float sum(v16 v) {
  float f[16];
  std::memcpy(f, &v, sizeof f);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) f[i] += f[i + width];
  }
  return f[0];
}

MOONCAF_INLINE float largest(v16 v) {
  float f[16];
  std::memcpy(f, &v, sizeof f);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) f[i] = f[i] > f[i + width] ? f[i] : f[i + width];
  }
  return f[0];
}

MOONCAF_INLINE v16 max(v16 a, v16 b) { return a > b ? a : b; }

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
    const std::uint32_t bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | mantissa << 13;
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

// ---- quantised products ----

/// acc[row] += sum over 4 columns of u[row][column] * s[column].
MOONCAF_INLINE i16x dot4(i16x acc, u8x64 u, const std::int8_t* s) {
#if defined(__AVX512VNNI__)
  std::int32_t four;
  std::memcpy(&four, s, 4);
  return (i16x)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)u, _mm512_set1_epi32(four));
#elif defined(__AVX2__)
  // Widened to 16 bits: the 8-bit form saturates for large unsigned weights.
  const __m256i columns = _mm256_set_epi16(s[3], s[2], s[1], s[0], s[3], s[2], s[1], s[0], s[3], s[2], s[1], s[0],
                                           s[3], s[2], s[1], s[0]);
  for (int q = 0; q < 4; ++q) {
    __m128i bytes;
    std::memcpy(&bytes, reinterpret_cast<const char*>(&u) + 16 * q, 16);
    const __m256i pairs = _mm256_madd_epi16(_mm256_cvtepu8_epi16(bytes), columns);
    const __m256i four = _mm256_hadd_epi32(pairs, pairs);
    const __m128i rows = _mm_unpacklo_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    std::int32_t add[4];
    std::memcpy(add, &rows, 16);
    for (int i = 0; i < 4; ++i) acc[4 * q + i] += add[i];
  }
  return acc;
#else
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 4; ++c) acc[r] += u[4 * r + c] * s[c];
  }
  return acc;
#endif
}

/// Quants of one group: Vectors of 16 rows x 4 columns.
template <unsigned Bits, unsigned Group>
MOONCAF_INLINE void load_quants(const std::byte* p, u8x64 (&w)[Group / 4]) {
  constexpr unsigned n = Group / 4;
  if constexpr (Bits == 8) {
    for (unsigned i = 0; i < n; ++i) std::memcpy(&w[i], p + 64 * i, 64);
  } else {
    for (unsigned i = 0; i < n / 2; ++i) {
      u8x64 both;
      std::memcpy(&both, p + 64 * i, 64);
      w[i] = both & 15;
      w[i + n / 2] = both >> 4;
    }
  }
}

template <unsigned ScaleSize>
MOONCAF_INLINE v16 load_scales(const std::byte* p) {
  if constexpr (ScaleSize == 4) {
    return load(reinterpret_cast<const float*>(p));
  } else {
    return load_half(p);
  }
}

/// `Tokens` tokens against one tile. The sum of a row goes over its groups in ascending order, two steps each:
/// + (integer dot * activation scale) * weight scale, + activation sum * weight minimum.
template <unsigned Tokens, unsigned Bits, unsigned Group, unsigned ScaleSize>
void product(const std::byte* tile, std::size_t groups, const quantized_rows& x, std::size_t token, v16 (&acc)[Tokens]) {
  constexpr unsigned n = Group / 4;
  const std::int8_t* q[Tokens];
  const float* scale[Tokens];
  const float* sums[Tokens];
  for (unsigned t = 0; t < Tokens; ++t) {
    q[t] = x.q + (token + t) * x.q_stride;
    scale[t] = x.scale + (token + t) * x.groups;
    sums[t] = Group == 32 ? x.sum32 + (token + t) * x.groups : x.sum16 + (token + t) * 2 * x.groups;
    acc[t] = v16{};
  }
  for (std::size_t g = 0; g < groups; ++g) {
    const v16 d = load_scales<ScaleSize>(tile);
    const v16 m = load_scales<ScaleSize>(tile + 16 * ScaleSize);
    u8x64 w[n];
    load_quants<Bits, Group>(tile + 32 * ScaleSize, w);
    for (unsigned t = 0; t < Tokens; ++t) {
      i16x dot{};
      for (unsigned i = 0; i < n; ++i) dot = dot4(dot, w[i], q[t] + g * Group + 4 * i);
      const v16 scaled = __builtin_convertvector(dot, v16) * splat(scale[t][Group == 32 ? g : g / 2]);
      acc[t] = fma(scaled, d, acc[t]);
      acc[t] = fma(splat(sums[t][g]), m, acc[t]);
    }
    tile += 16 * (2 * ScaleSize + Group * Bits / 8);
  }
}

MOONCAF_INLINE void put_rows(float* out, v16 v, std::size_t valid, const float* bias) {
  if (valid >= 16) {
    store(out, bias ? v + load(bias) : v);
    return;
  }
  float f[16];
  std::memcpy(f, &v, sizeof f);
  for (std::size_t i = 0; i < valid; ++i) out[i] = bias ? f[i] + bias[i] : f[i];
}

template <unsigned Tokens, unsigned Bits, unsigned Group, unsigned ScaleSize>
void product_rows(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t token, float* out,
                  std::size_t stride, const float* bias) {
  v16 acc[Tokens];
  product<Tokens, Bits, Group, ScaleSize>(w.tile(tile), w.groups(), x, token, acc);
  const auto row = tile * 16;
  for (unsigned t = 0; t < Tokens; ++t) {
    put_rows(out + (token + t) * stride + row, acc[t], w.rows - row, bias ? bias + row : nullptr);
  }
}

template <unsigned Bits, unsigned Group, unsigned ScaleSize>
void matmul_as(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t begin, std::size_t end,
               float* out, std::size_t stride, const float* bias) {
  auto t = begin;
  for (; t + 12 <= end; t += 12) product_rows<12, Bits, Group, ScaleSize>(w, tile, x, t, out, stride, bias);
  for (; t + 4 <= end; t += 4) product_rows<4, Bits, Group, ScaleSize>(w, tile, x, t, out, stride, bias);
  for (; t + 2 <= end; t += 2) product_rows<2, Bits, Group, ScaleSize>(w, tile, x, t, out, stride, bias);
  for (; t < end; ++t) product_rows<1, Bits, Group, ScaleSize>(w, tile, x, t, out, stride, bias);
}

void matmul_packed(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t begin,
                   std::size_t end, float* out, std::size_t stride, const float* bias) {
  if (w.bits == 4 && w.scale_size == 2) return matmul_as<4, 32, 2>(w, tile, x, begin, end, out, stride, bias);
  if (w.bits == 4) return matmul_as<4, 32, 4>(w, tile, x, begin, end, out, stride, bias);
  if (w.group == 16) return matmul_as<8, 16, 4>(w, tile, x, begin, end, out, stride, bias);
  if (w.scale_size == 2) return matmul_as<8, 32, 2>(w, tile, x, begin, end, out, stride, bias);
  matmul_as<8, 32, 4>(w, tile, x, begin, end, out, stride, bias);
}

void quantize(const float* x, std::size_t cols, std::int8_t* q, float* scale, float* sum32, float* sum16) {
  for (std::size_t g = 0; g < cols / 32; ++g, x += 32, q += 32) {
    const v16 a = load(x), b = load(x + 16);
    const float peak = largest(max(max(a, -a), max(b, -b)));
    const float d = peak / 127.0f;
    const float inverse = peak > 0 ? 127.0f / peak : 0.0f;
    int sums[2];
    for (int half = 0; half < 2; ++half) {
      const v16 magic = splat(12582912.0f);
      const i16x rounded = __builtin_convertvector((half ? b : a) * splat(inverse) + magic - magic, i16x);
      std::int32_t lanes[16];
      std::memcpy(lanes, &rounded, sizeof lanes);
      sums[half] = 0;
      for (int i = 0; i < 16; ++i) {
        q[16 * half + i] = static_cast<std::int8_t>(lanes[i]);
        sums[half] += lanes[i];
      }
    }
    scale[g] = d;
    sum16[2 * g] = d * static_cast<float>(sums[0]);
    sum16[2 * g + 1] = d * static_cast<float>(sums[1]);
    sum32[g] = d * static_cast<float>(sums[0] + sums[1]);
  }
}

// ---- plain products ----

/// Four partial sums by column modulo 4, whatever the number of tokens.
template <unsigned Tokens>
void plain_product(const float* tile, std::size_t cols, const float* x, std::size_t x_stride, float* out,
                   std::size_t out_stride, std::size_t valid, const float* bias) {
  v16 acc[Tokens][4] = {};
  for (std::size_t c = 0; c < cols; ++c) {
    const v16 w = load(tile + 16 * c);
    for (unsigned t = 0; t < Tokens; ++t) acc[t][c % 4] = fma(w, splat(x[t * x_stride + c]), acc[t][c % 4]);
  }
  for (unsigned t = 0; t < Tokens; ++t) {
    put_rows(out + t * out_stride, (acc[t][0] + acc[t][1]) + (acc[t][2] + acc[t][3]), valid, bias);
  }
}

void matmul_plain(const float* tile, std::size_t cols, const float* x, std::size_t x_stride, std::size_t tokens,
                  float* out, std::size_t out_stride, std::size_t valid, const float* bias) {
  std::size_t t = 0;
  for (; t + 4 <= tokens; t += 4) {
    plain_product<4>(tile, cols, x + t * x_stride, x_stride, out + t * out_stride, out_stride, valid, bias);
  }
  for (; t < tokens; ++t) {
    plain_product<1>(tile, cols, x + t * x_stride, x_stride, out + t * out_stride, out_stride, valid, bias);
  }
}

// ---- elementwise ----

void rms_norm(const float* x, const float* gain, float eps, std::size_t n, float* out) {
  v16 squares{};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) squares = fma(load(x + i), load(x + i), squares);
  float total = sum(squares);
  for (; i < n; ++i) total += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(total / static_cast<float>(n) + eps);
  i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, load(x + i) * splat(factor) * load(gain + i));
  for (; i < n; ++i) out[i] = x[i] * factor * gain[i];
}

void swiglu(const float* gate, const float* up, std::size_t n, float* out) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const v16 g = load(gate + i);
    store(out + i, g / (splat(1.0f) + exponential(-g)) * load(up + i));
  }
  if (i == n) return;
  float g[16] = {}, u[16] = {};
  std::copy(gate + i, gate + n, g);
  std::copy(up + i, up + n, u);
  const v16 v = load(g) / (splat(1.0f) + exponential(-load(g))) * load(u);
  std::memcpy(g, &v, sizeof g);
  std::copy(g, g + (n - i), out + i);
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

void to_half(const float* x, std::size_t n, std::uint16_t* out) {
  std::size_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(x + i), 0));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
  }
#endif
  for (; i < n; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const auto magnitude = bits & 0x7FFFFFFFu;
    std::uint32_t half;
    if (magnitude > 0x7F800000u) {
      half = 0x7E00u;
    } else if (magnitude >= 0x477FF000u) {
      half = 0x7C00u;
    } else if (magnitude < 0x38800000u) {
      float shifted;
      std::memcpy(&shifted, &magnitude, 4);
      shifted += 0.5f;
      std::memcpy(&half, &shifted, 4);
      half -= 0x3F000000u;
    } else {
      half = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    }
    out[i] = static_cast<std::uint16_t>(sign | half);
  }
}

// ---- attention ----

constexpr std::size_t key_tile = 64;  ///< keys that are weighed together; tiles start at multiples of it in a block

/// A tile of keys, transposed to [dim][64], and of values, [64][dim], as f32. Rows from `valid` on become zero, since
/// what lies in memory there is not a number that anyone wrote.
void load_tile(const kv_layout& layout, const std::byte* plane_k, const std::byte* plane_v, std::size_t valid,
               std::size_t dim, float* keys, float* values) {
  const auto row_bytes = layout.row_bytes();
  const auto row = [&](const std::byte* p, std::size_t i) {
    return layout.dtype == kv_dtype::f16 ? load_half(p + 2 * i) : load(reinterpret_cast<const float*>(p) + i);
  };
  const auto partial = [&](const std::byte* p, std::size_t i, float (&f)[16]) {
    const auto left = std::min<std::size_t>(16, layout.head_dim - i);
    alignas(64) std::byte copy[64] = {};
    std::memcpy(copy, p + i * size_bytes(layout.dtype), left * size_bytes(layout.dtype));
    const v16 v = row(copy, 0);
    std::memcpy(f, &v, sizeof f);
  };
  alignas(64) float columns[16][16];
  for (std::size_t t = 0; t < key_tile; t += 16) {
    for (std::size_t i = 0; i < dim; i += 16) {
      const bool whole = i + 16 <= layout.head_dim;
      for (std::size_t k = 0; k < 16; ++k) {
        if (t + k >= valid) {
          std::fill(columns[k], columns[k] + 16, 0.0f);
          store(values + (t + k) * dim + i, v16{});
          continue;
        }
        if (whole) {
          store(columns[k], row(plane_k + (t + k) * row_bytes, i));
          store(values + (t + k) * dim + i, row(plane_v + (t + k) * row_bytes, i));
        } else {
          float f[16];
          partial(plane_k + (t + k) * row_bytes, i, columns[k]);
          partial(plane_v + (t + k) * row_bytes, i, f);
          store(values + (t + k) * dim + i, load(f));
        }
      }
      for (std::size_t c = 0; c < 16; ++c) {
        float* to = keys + (i + c) * key_tile + t;
        for (std::size_t k = 0; k < 16; ++k) to[k] = columns[k][c];
      }
    }
  }
}

/// scores[r][64] = sum over d, ascending, of q[r][d] * keys[d][64].
template <unsigned Rows>
void weigh(const float* q, std::size_t q_stride, const float* keys, std::size_t head_dim, float* scores) {
  v16 acc[Rows][4] = {};
  for (std::size_t d = 0; d < head_dim; ++d) {
    v16 k[4];
    for (int i = 0; i < 4; ++i) k[i] = load(keys + d * key_tile + 16 * i);
    for (unsigned r = 0; r < Rows; ++r) {
      const v16 x = splat(q[r * q_stride + d]);
      for (int i = 0; i < 4; ++i) acc[r][i] = fma(x, k[i], acc[r][i]);
    }
  }
  for (unsigned r = 0; r < Rows; ++r) {
    for (int i = 0; i < 4; ++i) store(scores + r * key_tile + 16 * i, acc[r][i]);
  }
}

/// sums[r][16 columns at c] = sums * decay[r] + sum over keys, ascending, of p[r][k] * values[k][c].
template <unsigned Rows, unsigned Vectors>
void gather_as(const float* p, const float* decay, const float* values, std::size_t dim, std::size_t c, float* sums) {
  v16 acc[Rows][Vectors];
  for (unsigned r = 0; r < Rows; ++r) {
    for (unsigned i = 0; i < Vectors; ++i) acc[r][i] = load(sums + r * dim + c + 16 * i) * splat(decay[r]);
  }
  for (std::size_t k = 0; k < key_tile; ++k) {
    v16 v[Vectors];
    for (unsigned i = 0; i < Vectors; ++i) v[i] = load(values + k * dim + c + 16 * i);
    for (unsigned r = 0; r < Rows; ++r) {
      const v16 w = splat(p[r * key_tile + k]);
      for (unsigned i = 0; i < Vectors; ++i) acc[r][i] = fma(w, v[i], acc[r][i]);
    }
  }
  for (unsigned r = 0; r < Rows; ++r) {
    for (unsigned i = 0; i < Vectors; ++i) store(sums + r * dim + c + 16 * i, acc[r][i]);
  }
}

template <unsigned Rows>
void gather(const float* p, const float* decay, const float* values, std::size_t dim, float* sums) {
  std::size_t c = 0;
  for (; c + 64 <= dim; c += 64) gather_as<Rows, 4>(p, decay, values, dim, c, sums);
  for (; c < dim; c += 16) gather_as<Rows, 1>(p, decay, values, dim, c, sums);
}

/// One row's share of the online softmax over a tile: scores become weights.
/// @returns the factor by which what was gathered before has to shrink.
float soften(float* scores, float scale, std::int64_t visible, float& peak, float& total) {
  const v16 hidden = splat(-std::numeric_limits<float>::infinity());
  v16 s[4];
  for (int i = 0; i < 4; ++i) {
    i16x lane;
    for (int l = 0; l < 16; ++l) lane[l] = 16 * i + l;
    const i16x seen = lane < static_cast<std::int32_t>(visible);
    s[i] = seen ? load(scores + 16 * i) * splat(scale) : hidden;
  }
  const float highest = std::max(peak, largest(max(max(s[0], s[1]), max(s[2], s[3]))));
  v16 decay = splat(peak - highest);
  decay = exponential(decay);
  for (int i = 0; i < 4; ++i) {
    s[i] = exponential(s[i] - splat(highest));
    store(scores + 16 * i, s[i]);
  }
  peak = highest;
  total = total * decay[0] + sum((s[0] + s[1]) + (s[2] + s[3]));
  return decay[0];
}

void attention(const attention_task& task, float* scratch) {
  const auto& layout = *task.layout;
  const std::size_t dim = (layout.head_dim + 15) / 16 * 16;
  const std::size_t rows = std::size_t{task.tokens} * task.group;
  float* keys = scratch;
  float* values = keys + key_tile * dim;
  float* scores = values + key_tile * dim;
  float* queries = scores + rows * key_tile;
  float* sums = queries + rows * dim;
  float* peak = sums + rows * dim;
  float* total = peak + rows;
  float* decay = total + rows;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* q = task.q + r / task.group * task.q_stride + r % task.group * layout.head_dim;
    std::copy(q, q + layout.head_dim, queries + r * dim);
    std::fill(queries + r * dim + layout.head_dim, queries + (r + 1) * dim, 0.0f);
    peak[r] = -std::numeric_limits<float>::infinity();
    total[r] = 0;
  }
  std::fill(sums, sums + rows * dim, 0.0f);

  const auto end = task.first_position + task.tokens;  // keys at and after this are seen by nobody here
  for (std::uint32_t start = 0; start < end;) {
    const auto block = start / layout.block_tokens;
    const auto within = start % layout.block_tokens;
    const auto count = std::min<std::uint32_t>(key_tile, layout.block_tokens - within);
    const auto* base = task.blocks[block];
    load_tile(layout, base + layout.offset(task.layer, task.kv_head, false, within),
              base + layout.offset(task.layer, task.kv_head, true, within), std::min(count, end - start), dim, keys,
              values);
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) weigh<4>(queries + r * dim, dim, keys, layout.head_dim, scores + r * key_tile);
    for (; r < rows; ++r) weigh<1>(queries + r * dim, dim, keys, layout.head_dim, scores + r * key_tile);
    for (r = 0; r < rows; ++r) {
      const auto position = task.first_position + static_cast<std::uint32_t>(r / task.group);
      const auto visible = std::min<std::int64_t>(count, std::int64_t{position} + 1 - start);
      decay[r] = soften(scores + r * key_tile, task.scale, visible, peak[r], total[r]);
    }
    r = 0;
    for (; r + 4 <= rows; r += 4) gather<4>(scores + r * key_tile, decay + r, values, dim, sums + r * dim);
    for (; r < rows; ++r) gather<1>(scores + r * key_tile, decay + r, values, dim, sums + r * dim);
    start += count;
  }
  for (std::size_t r = 0; r < rows; ++r) {
    float* out = task.out + r / task.group * task.out_stride + r % task.group * layout.head_dim;
    const float inverse = 1.0f / total[r];
    for (std::uint32_t d = 0; d < layout.head_dim; ++d) out[d] = sums[r * dim + d] * inverse;
  }
}

}  // namespace

const kernel_set set{MOONCAF_ISA, quantize, matmul_packed, matmul_plain, rms_norm, swiglu, add, to_half, attention};

}  // namespace mooncaf::MOONCAF_KERNELS
