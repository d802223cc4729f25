// Operations that treat each row alone: norms, activation, rotation, conversions.
// A body of kernel_set.hpp, compiled once per instruction set: no include guard, no namespace of its own.

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

/// out[i] = f(a[i], b[i]), sixteen at a time.
template <class F>
MOONCAF_INLINE void lanes_of(const float* a, const float* b, std::size_t n, float* out, const F& f) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, f(load(a + i), load(b + i)));
  if (i == n) return;
  float x[16] = {}, y[16] = {};
  std::copy(a + i, a + n, x);
  std::copy(b + i, b + n, y);
  store(x, f(load(x), load(y)));
  std::copy(x, x + (n - i), out + i);
}

void swiglu(const float* gate, const float* up, std::size_t n, float* out) {
  lanes_of(gate, up, n, out, [](v16 g, v16 u) { return g / (splat(1.0f) + exponential(-g)) * u; });
}

/// GELU(g) = g (1 + tanh z) / 2 = g / (1 + exp(-2z)), z = sqrt(2/π) (g + 0.044715 g³).
void geglu(const float* gate, const float* up, std::size_t n, float* out) {
  lanes_of(gate, up, n, out, [](v16 g, v16 u) {
    const v16 z = g * fma(g * g, splat(0.07135481627f), splat(1.595769122f));
    return g / (splat(1.0f) + exponential(-z)) * u;
  });
}

/// SiLU of 1.702 g, divided by 1.702, times u + 1.
void clamped_swiglu(const float* gate, const float* up, float limit, std::size_t n, float* out) {
  const v16 most = splat(limit), least = splat(-limit);
  lanes_of(gate, up, n, out, [=](v16 g, v16 u) {
    g = choose(g > most, most, g);
    u = max(least, choose(u > most, most, u));
    return g / (splat(1.0f) + exponential(g * splat(-1.702f))) * (u + splat(1.0f));
  });
}

void soft_cap(float* x, float cap, std::size_t n) {
  lanes_of(x, x, n, x, [cap](v16 v, v16) { return capped(v, cap); });
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

void rope(float* x, const float* turn, std::size_t n, bool neox) {
  const float* cosine = turn;
  const float* sine = turn + n;
  const auto half = n / 2;
  std::size_t i = 0;
  if (neox) {
    for (; i + 16 <= half; i += 16) {
      const v16 a = load(x + i), b = load(x + half + i);
      store(x + i, fma(b, load(sine + i), a * load(cosine + i)));
      store(x + half + i, fma(a, load(sine + half + i), b * load(cosine + half + i)));
    }
    for (; i < half; ++i) {
      const float a = x[i], b = x[half + i];
      x[i] = a * cosine[i] + b * sine[i];
      x[half + i] = b * cosine[half + i] + a * sine[half + i];
    }
    return;
  }
  for (; i + 16 <= n; i += 16) {
    const v16 v = load(x + i);
    store(x + i, fma(swap_neighbours(v), load(sine + i), v * load(cosine + i)));
  }
  for (; i + 2 <= n; i += 2) {
    const float a = x[i], b = x[i + 1];
    x[i] = a * cosine[i] + b * sine[i];
    x[i + 1] = b * cosine[i + 1] + a * sine[i + 1];
  }
}

// The loop at the end gives the bits of the instructions: ties to even, subnormals kept, one NaN for all.
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

/// Largest magnitude of the elements [from, end) of a row of floats; `from` is a multiple of 16.
MOONCAF_INLINE float top_of(const std::byte* row, std::size_t from, std::size_t end) {
  v16 peak{};
  for (std::size_t i = from; i < end; i += 16)
    peak = max(peak, magnitude(elements<kv_form::f32>(row, i, end)));
  return largest(peak);
}

void to_int8(const float* x, std::size_t n, std::byte* out) {
  const auto* row = reinterpret_cast<const std::byte*>(x);
  const integer_scale by{top_of(row, 0, n), int8_row::most};
  int8_row::begin(by.scale, n, out);
  for (std::size_t i = 0; i < n; i += 16) {
    std::int32_t integers[16];
    store_pairs(integers, rounded(elements<kv_form::f32>(row, i, n) * splat(by.inverse)));
    for (std::size_t j = 0; j < std::min<std::size_t>(16, n - i); ++j)
      out[int8_row::header_bytes + i + j] = static_cast<std::byte>(integers[j]);
  }
}

void to_int4(const float* x, std::size_t n, std::byte* out) {
  const auto* row = reinterpret_cast<const std::byte*>(x);
  const int4_row::factors by(top_of(row, 0, n));
  int4_row::begin(by.scale, n, out);
  auto* to = out + int4_row::header_bytes(n);
  for (std::size_t i = 0; i < n; i += int4_row::group) {
    const auto end = std::min(n, i + int4_row::group);
    const float multiplier = by.multiplier(top_of(row, i, end)), inverse = by.inverse(multiplier);
    out[int4_row::multipliers_at + i / int4_row::group] = static_cast<std::byte>(multiplier);
    for (std::size_t j = i; j < end; j += 16) {
      const v16 scaled = elements<kv_form::f32>(row, j, end) * splat(inverse);
      const v16 capped_above = choose(scaled > splat(int4_row::most), splat(int4_row::most), scaled);
      std::int32_t integers[16];
      store_pairs(integers, rounded(max(splat(-int4_row::most), capped_above)));
      for (std::size_t e = 0; e < 8; ++e)
        to[j / 2 + e] = static_cast<std::byte>((integers[e] & 15) | (integers[8 + e] & 15) << 4);
    }
  }
}
