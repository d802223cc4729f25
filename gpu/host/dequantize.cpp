#include "gpu/host/dequantize.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace mooncaf {

namespace {

using u8 = std::uint8_t;

void q4_0(const u8* b, float* out) noexcept {
  const float d = half_at(b);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((b[2 + i] >> 4) - 8);
  }
}

void mxfp4(const u8* b, float* out) noexcept {
  const float scale = mxfp4_half_scale(*b);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * mxfp4_doubled[b[1 + i] & 15];
    out[i + 16] = scale * mxfp4_doubled[b[1 + i] >> 4];
  }
}

void q4_1(const u8* b, float* out) noexcept {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(b[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(b[4 + i] >> 4) + m;
  }
}

void q8_0(const u8* b, float* out) noexcept {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<std::int8_t>(b[2 + i]));
}

/// Six-bit scale and minimum of sub-block j out of the twelve packed bytes of a K-quant.
void scale_min(const u8* s, int j, int& scale, int& min) noexcept {
  if (j < 4) {
    scale = s[j] & 63;
    min = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

void q4_k(const u8* b, float* out) noexcept {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  const u8* quants = b + 16;
  for (int j = 0; j < 8; ++j) {
    int scale, min;
    scale_min(b + 4, j, scale, min);
    const u8* q = quants + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      const int value = j % 2 == 0 ? q[i] & 15 : q[i] >> 4;
      out[32 * j + i] =
          d * static_cast<float>(scale) * static_cast<float>(value) - dmin * static_cast<float>(min);
    }
  }
}

void q5_k(const u8* b, float* out) noexcept {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  const u8* high = b + 16;
  const u8* quants = b + 48;
  for (int j = 0; j < 8; ++j) {
    int scale, min;
    scale_min(b + 4, j, scale, min);
    const u8* q = quants + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      const int low = j % 2 == 0 ? q[i] & 15 : q[i] >> 4;
      const int value = low + ((high[i] >> j & 1) << 4);
      out[32 * j + i] =
          d * static_cast<float>(scale) * static_cast<float>(value) - dmin * static_cast<float>(min);
    }
  }
}

void q6_k(const u8* b, float* out) noexcept {
  const float d = half_at(b + 208);
  for (int half = 0; half < 2; ++half) {
    const u8* low = b + 64 * half;
    const u8* high = b + 128 + 32 * half;
    const auto* scales = reinterpret_cast<const std::int8_t*>(b + 192 + 8 * half);
    for (int i = 0; i < 32; ++i) {
      const int bits[4] = {(low[i] & 15) | (high[i] & 3) << 4, (low[i + 32] & 15) | (high[i] >> 2 & 3) << 4,
                           (low[i] >> 4) | (high[i] >> 4 & 3) << 4, (low[i + 32] >> 4) | (high[i] >> 6) << 4};
      for (int k = 0; k < 4; ++k) {
        out[128 * half + 32 * k + i] =
            d * static_cast<float>(scales[2 * k + i / 16]) * static_cast<float>(bits[k] - 32);
      }
    }
  }
}

}  // namespace

float half_to_float(std::uint16_t h) noexcept {
  const std::uint32_t sign = (h & 0x8000u) << 16;
  const std::uint32_t exponent = h >> 10 & 31;
  std::uint32_t mantissa = h & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float tiny = static_cast<float>(mantissa) * 0x1p-24f;  // zero and subnormals
  return sign ? -tiny : tiny;
}

float half_at(const std::uint8_t* bytes) noexcept {
  std::uint16_t half;
  std::memcpy(&half, bytes, 2);
  return half_to_float(half);
}

std::uint16_t float_to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const auto magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // rounds beyond the largest half
  if (magnitude < 0x38800000u) {                        // subnormal half: let the float adder round
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u);
  }
  const auto rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000u) >> 13);
}

float mxfp4_half_scale(std::uint8_t code) noexcept { return std::ldexp(1.0f, int{code} - 128); }

// One expansion for each type, block by block: the reference, where plain beats fast.
void dequantize_row(ggml_type type, std::span<const std::byte> row, std::span<float> out) noexcept {
  const auto* b = reinterpret_cast<const u8*>(row.data());
  const auto blocks = out.size() / block_elements(type);
  const auto each = [&](auto expand) {
    for (std::size_t i = 0; i < blocks; ++i)
      expand(b + i * block_bytes(type), out.data() + i * block_elements(type));
  };
  switch (type) {
    case ggml_type::f32:
      std::memcpy(out.data(), b, out.size_bytes());
      break;
    case ggml_type::f16:
      each([](const u8* p, float* o) { *o = half_at(p); });
      break;
    case ggml_type::bf16:
      each([](const u8* p, float* o) {
        std::uint16_t bits;
        std::memcpy(&bits, p, 2);
        *o = std::bit_cast<float>(std::uint32_t{bits} << 16);
      });
      break;
    case ggml_type::q4_0:
      each(q4_0);
      break;
    case ggml_type::q4_1:
      each(q4_1);
      break;
    case ggml_type::q8_0:
      each(q8_0);
      break;
    case ggml_type::q4_k:
      each(q4_k);
      break;
    case ggml_type::q5_k:
      each(q5_k);
      break;
    case ggml_type::q6_k:
      each(q6_k);
      break;
    case ggml_type::mxfp4:
      each(mxfp4);
      break;
  }
}

}  // namespace mooncaf
