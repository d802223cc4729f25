// Matrix products over packed and plain weights.
// A body of kernel_set.hpp, compiled once per instruction set: no include guard, no namespace of its own.

#if defined(__AVX2__) && !defined(__AVX512F__)
/// Eight rows of a group: quants as bytes, four columns a lane.
template <unsigned Bits, unsigned n>
MOONCAF_INLINE void load_half_quants(const std::byte* p, __m256i (&w)[n]) {
  const auto at = [&](unsigned i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64 * i));
  };
  if constexpr (Bits == 8) {
    for (unsigned i = 0; i < n; ++i) w[i] = at(i);
  } else {
    const __m256i low = _mm256_set1_epi8(15);
    for (unsigned i = 0; i < n / 2; ++i) {
      w[i] = _mm256_and_si256(at(i), low);
      w[i + n / 2] = _mm256_and_si256(_mm256_srli_epi16(at(i), 4), low);
    }
  }
}

/// Their integer dots with `4 * n` columns.
template <unsigned Bits, unsigned n>
MOONCAF_INLINE __m256i dot_half(const __m256i (&w)[n], const std::int8_t* s) {
  __m256i sum = _mm256_setzero_si256();
  for (unsigned i = 0; i < n; ++i) {
    if constexpr (Bits == 4) {
      // Sums of two products, at most 2 * 15 * 128: eight of them fit into 16 bits.
      static_assert(n <= 8);
      std::int32_t four;
      std::memcpy(&four, s + 4 * i, 4);
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[i], _mm256_set1_epi32(four)));
    } else {
      // That would saturate: even and odd columns, widened in place.
      const auto both = [&](int low, int high) {
        return _mm256_set1_epi32(static_cast<std::uint16_t>(s[4 * i + low]) | s[4 * i + high] * 65536);
      };
      const __m256i even = _mm256_and_si256(w[i], _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(w[i], 8);
      sum = _mm256_add_epi32(
          sum, _mm256_add_epi32(_mm256_madd_epi16(even, both(0, 2)), _mm256_madd_epi16(odd, both(1, 3))));
    }
  }
  return Bits == 4 ? _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) : sum;
}

template <unsigned ScaleSize>
MOONCAF_INLINE __m256 load_half_scales(const std::byte* p) {
  if constexpr (ScaleSize == 4) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  else return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
#else
using u8x64 = std::uint8_t __attribute__((vector_size(64)));

/// Integer dots of 16 rows with `4 * n` columns of s; w: [n][16 rows][4 columns], each below 2^Bits.
template <unsigned Bits, unsigned n>
MOONCAF_INLINE i16x dot_group(const u8x64 (&w)[n], const std::int8_t* s) {
  i16x dot{};
#if defined(__AVX512VNNI__)
  for (unsigned i = 0; i < n; ++i) {
    std::int32_t four;
    std::memcpy(&four, s + 4 * i, 4);
    dot = (i16x)_mm512_dpbusd_epi32((__m512i)dot, (__m512i)w[i], _mm512_set1_epi32(four));
  }
#else
  for (unsigned i = 0; i < n; ++i) {
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < 4; ++c) dot[r] += w[i][4 * r + c] * s[4 * i + c];
    }
  }
#endif
  return dot;
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
#endif

/// `Tokens` tokens against one tile. The sum of a row goes over its groups in ascending order, two steps
/// each:
/// + (integer dot * activation scale) * weight scale, + activation sum * weight minimum.
template <unsigned Tokens, unsigned Bits, unsigned Group, unsigned ScaleSize>
void product(const std::byte* tile, std::size_t groups, const quantized_rows& x, std::size_t token,
             v16 (&acc)[Tokens]) {
  constexpr unsigned n = Group / 4;
  constexpr unsigned group_bytes = 16 * (2 * ScaleSize + Group * Bits / 8);
  const std::int8_t* q[Tokens];
  const float* scale[Tokens];
  const float* sums[Tokens];
  for (unsigned t = 0; t < Tokens; ++t) {
    q[t] = x.q + (token + t) * x.q_stride;
    scale[t] = x.scale + (token + t) * x.groups;
    sums[t] = Group == 32 ? x.sum32 + (token + t) * x.groups : x.sum16 + (token + t) * 2 * x.groups;
    acc[t] = v16{};
  }
#if defined(__AVX2__) && !defined(__AVX512F__)
  // By halves of the rows: vectors wider than the registers would live in memory.
  for (int half = 0; half < 2; ++half) {
    const std::byte* at = tile;
    __m256 sum[Tokens] = {};
    for (std::size_t g = 0; g < groups; ++g, at += group_bytes) {
      const __m256 d = load_half_scales<ScaleSize>(at + 8 * ScaleSize * half);
      const __m256 m = load_half_scales<ScaleSize>(at + (16 + 8 * half) * ScaleSize);
      __m256i w[n];
      load_half_quants<Bits>(at + 32 * ScaleSize + 32 * half, w);
      for (unsigned t = 0; t < Tokens; ++t) {
        const __m256 dot = _mm256_cvtepi32_ps(dot_half<Bits>(w, q[t] + g * Group));
        const __m256 scaled = _mm256_mul_ps(dot, _mm256_set1_ps(scale[t][Group == 32 ? g : g / 2]));
        sum[t] = _mm256_fmadd_ps(scaled, d, sum[t]);
        sum[t] = _mm256_fmadd_ps(_mm256_set1_ps(sums[t][g]), m, sum[t]);
      }
    }
    for (unsigned t = 0; t < Tokens; ++t) (half == 0 ? acc[t].low : acc[t].high) = (f8)sum[t];
  }
#else
  for (std::size_t g = 0; g < groups; ++g) {
    const v16 d = load_scales<ScaleSize>(tile);
    const v16 m = load_scales<ScaleSize>(tile + 16 * ScaleSize);
    u8x64 w[n];
    load_quants<Bits, Group>(tile + 32 * ScaleSize, w);
    // The processor fetches ahead too late when a few tokens keep it busy between two lines.
    for (unsigned line = 0; line < group_bytes; line += 64) __builtin_prefetch(tile + 8 * group_bytes + line);
    const auto add_group = [&](unsigned t) __attribute__((always_inline)) {
      const i16x dot = dot_group<Bits>(w, q[t] + g * Group);
      const v16 scaled = to_float(dot) * splat(scale[t][Group == 32 ? g : g / 2]);
      acc[t] = fma(scaled, d, acc[t]);
      acc[t] = fma(splat(sums[t][g]), m, acc[t]);
    };
    if constexpr (Tokens <= 4) {
      for (unsigned t = 0; t < Tokens; ++t) add_group(t);
    } else {
#pragma GCC unroll 1  // unrolled, more tokens than this push the weights out of the registers
      for (unsigned t = 0; t < Tokens; ++t) add_group(t);
    }
    tile += group_bytes;
  }
#endif
}

MOONCAF_INLINE void put_rows(float* out, v16 v, std::size_t valid, const float* bias) {
  if (valid >= 16) {
    store(out, bias ? v + load(bias) : v);
    return;
  }
  float f[16];
  store(f, v);
  for (std::size_t i = 0; i < valid; ++i) out[i] = bias ? f[i] + bias[i] : f[i];
}

template <unsigned Tokens, unsigned Bits, unsigned Group, unsigned ScaleSize>
void product_rows(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t token,
                  float* out, std::size_t stride, const float* bias) {
  v16 acc[Tokens];
  product<Tokens, Bits, Group, ScaleSize>(w.tile(tile), w.groups(), x, token, acc);
  const auto row = tile * 16;
  for (unsigned t = 0; t < Tokens; ++t) {
    put_rows(out + (token + t) * stride + row, acc[t], w.rows - row, bias ? bias + row : nullptr);
  }
}

template <unsigned Bits, unsigned Group, unsigned ScaleSize>
void matmul_as(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t begin,
               std::size_t end, float* out, std::size_t stride, const float* bias) {
  auto t = begin;
  for (; t + 12 <= end; t += 12) product_rows<12, Bits, Group, ScaleSize>(w, tile, x, t, out, stride, bias);
  for (; t + 8 <= end; t += 8) product_rows<8, Bits, Group, ScaleSize>(w, tile, x, t, out, stride, bias);
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
    float sums[2];
    for (int half = 0; half < 2; ++half) {
      std::int32_t lanes[16];
      store_pairs(lanes, rounded((half ? b : a) * splat(inverse)));
      std::uint32_t total = 0;  // unsigned: a row that holds a NaN becomes any integers
      for (int i = 0; i < 16; ++i) {
        q[16 * half + i] = static_cast<std::int8_t>(lanes[i]);
        total += static_cast<std::uint32_t>(lanes[i]);
      }
      sums[half] = static_cast<float>(static_cast<std::int32_t>(total));
    }
    scale[g] = d;
    sum16[2 * g] = d * sums[0];
    sum16[2 * g + 1] = d * sums[1];
    sum32[g] = d * (sums[0] + sums[1]);
  }
}

/// A part's weights of two columns, as `pack_plain` lays them.
template <ggml_type Type>
MOONCAF_INLINE void load_columns(const std::byte* p, std::size_t part, row_part& even, row_part& odd) {
  constexpr std::size_t lanes = sizeof(row_part) / sizeof(float), column = 16 * block_bytes(Type);
  if constexpr (Type == ggml_type::bf16) {
    load_brain_pairs(p + 4 * lanes * part, even, odd);
  } else {
    const auto at = [&](const std::byte* from) {
      row_part v;
      if constexpr (Type == ggml_type::f16) v = load_half_part(from);
      else std::memcpy(&v, from, sizeof v);
      return v;
    };
    even = at(p + lanes * part * block_bytes(Type));
    odd = at(p + column + lanes * part * block_bytes(Type));
  }
}

/// Two sums a row, of the even and the odd columns in ascending order, whatever the number of tokens.
template <ggml_type Type, unsigned Tokens>
void plain_product(const std::byte* tile, std::size_t cols, const float* x, std::size_t x_stride, float* out,
                   std::size_t out_stride, std::size_t valid, const float* bias) {
  constexpr std::size_t lanes = sizeof(row_part) / sizeof(float), pair_bytes = 32 * block_bytes(Type);
  v16 rows[Tokens];
  for (std::size_t part = 0; part < 16 / lanes; ++part) {
    row_part sum[Tokens][2] = {};
    const std::byte* at = tile;
    row_part even, odd;
    for (std::size_t c = 0; c + 2 <= cols; c += 2, at += pair_bytes) {
      load_columns<Type>(at, part, even, odd);
      __builtin_prefetch(at + 128 * 64);  // the processor fetches ahead too late: a third of decode's speed
#pragma GCC unroll 16                     // or the sums live in memory
      for (unsigned t = 0; t < Tokens; ++t) {
        const float* pair = x + t * x_stride + c;
        sum[t][0] = fma(even, splat_part(pair[0]), sum[t][0]);
        sum[t][1] = fma(odd, splat_part(pair[1]), sum[t][1]);
      }
    }
    if (cols % 2 == 1) {
      load_columns<Type>(at, part, even, odd);
      for (unsigned t = 0; t < Tokens; ++t)
        sum[t][0] = fma(even, splat_part(x[t * x_stride + cols - 1]), sum[t][0]);
    }
    for (unsigned t = 0; t < Tokens; ++t) {
      const row_part total = sum[t][0] + sum[t][1];
      std::memcpy(reinterpret_cast<std::byte*>(&rows[t]) + sizeof total * part, &total, sizeof total);
    }
  }
  for (unsigned t = 0; t < Tokens; ++t) put_rows(out + t * out_stride, rows[t], valid, bias);
}

/// As many tokens at once as registers hold: a token's sums are the same in any company.
template <ggml_type Type, unsigned Tokens>
void matmul_plain_as(const std::byte* tile, std::size_t cols, const float* x, std::size_t x_stride,
                     std::size_t tokens, float* out, std::size_t out_stride, std::size_t valid,
                     const float* bias) {
  std::size_t t = 0;
  for (; t + Tokens <= tokens; t += Tokens) {
    plain_product<Type, Tokens>(tile, cols, x + t * x_stride, x_stride, out + t * out_stride, out_stride,
                                valid, bias);
  }
  if constexpr (Tokens > 1) {
    constexpr unsigned fewer = Tokens > 8 ? 8 : Tokens > 4 ? 4 : Tokens / 2;
    matmul_plain_as<Type, fewer>(tile, cols, x + t * x_stride, x_stride, tokens - t, out + t * out_stride,
                                 out_stride, valid, bias);
  }
}

void matmul_plain(ggml_type type, const std::byte* tile, std::size_t cols, const float* x,
                  std::size_t x_stride, std::size_t tokens, float* out, std::size_t out_stride,
                  std::size_t valid, const float* bias) {
  const auto multiply = type == ggml_type::f16    ? matmul_plain_as<ggml_type::f16, most_tokens>
                        : type == ggml_type::bf16 ? matmul_plain_as<ggml_type::bf16, most_tokens>
                                                  : matmul_plain_as<ggml_type::f32, most_tokens>;
  multiply(tile, cols, x, x_stride, tokens, out, out_stride, valid, bias);
}
