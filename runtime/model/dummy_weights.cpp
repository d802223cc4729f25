#include "runtime/model/dummy_weights.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace mooncaf {

namespace {

/// splitmix64: one multiply-and-shift chain per 8 bytes, any position in any order.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// IEEE half precision of a positive value below 1; rounds towards zero, which is all that a scale needs.
std::uint16_t half_of(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23) - 127 + 15;
  const std::uint32_t fraction = (bits & 0x7FFFFFu) | 0x800000u;
  if (exponent < -9) return 1;
  if (exponent <= 0) return static_cast<std::uint16_t>(fraction >> (14 - exponent));
  return static_cast<std::uint16_t>((static_cast<std::uint32_t>(exponent) << 10) |
                                    ((fraction >> 13) & 0x3FFu));
}

void put_half(std::byte* at, float value) noexcept {
  const auto bits = static_cast<std::uint16_t>(half_of(std::fabs(value)) | (value < 0 ? 0x8000u : 0u));
  std::memcpy(at, &bits, sizeof bits);
}

/// Standard deviation of an entry in units of the block's scale, when the payload is uniform random bits.
/// For the K types it includes the spread of the 6-bit (Q6_K: 8-bit) sub-scales and of the offsets.
float spread(ggml_type type) noexcept {
  switch (type) {
    case ggml_type::q4_0:
    case ggml_type::q4_1:
      return 4.6f;
    case ggml_type::q8_0:
      return 74;
    case ggml_type::q4_k:
      return 260;
    case ggml_type::q5_k:
      return 530;
    case ggml_type::q6_k:
      return 1370;
    default:
      return 1;
  }
}

/// Writes the scales of one block over its random payload.
void put_scales(ggml_type type, std::byte* block, float scale) noexcept {
  switch (type) {
    case ggml_type::q4_0:
    case ggml_type::q8_0:
      put_half(block, scale);
      break;
    case ggml_type::q4_1:
      put_half(block, scale);
      put_half(block + 2, -7.5f * scale);  // the middle of 0..15 becomes 0
      break;
    case ggml_type::q4_k:
      put_half(block, scale);
      put_half(block + 2, 7.5f * scale);  // offsets are subtracted
      break;
    case ggml_type::q5_k:
      put_half(block, scale);
      put_half(block + 2, 15.5f * scale);
      break;
    case ggml_type::q6_k:
      put_half(block + block_bytes(type) - 2, scale);
      break;
    default:
      break;
  }
}

/// Uniform in ±sqrt(3)·scale, whose standard deviation is `scale`.
float plain_value(std::uint64_t random, float scale) noexcept {
  const float unit = static_cast<float>(random >> 40) * 0x1p-24f;
  return (2 * unit - 1) * 1.7320508f * scale;
}

}  // namespace

void fill_dummy_weight(ggml_type type, std::size_t cols, std::uint64_t seed, std::span<std::byte> out) {
  const float scale = 1 / (std::sqrt(static_cast<float>(cols)) * spread(type));
  const auto stride = block_bytes(type);
  if (block_elements(type) == 1) {
    for (std::size_t i = 0; i * stride < out.size(); ++i) {
      const float value = plain_value(mix(seed + i), scale);
      std::byte* at = out.data() + i * stride;
      if (type == ggml_type::f32) {
        std::memcpy(at, &value, sizeof value);
      } else if (type == ggml_type::f16) {
        put_half(at, value);
      } else {
        const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
        std::memcpy(at, &upper, sizeof upper);
      }
    }
    return;
  }
  std::size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const auto bits = mix(seed + i);
    std::memcpy(out.data() + i, &bits, sizeof bits);
  }
  const auto bits = mix(seed + i);
  std::memcpy(out.data() + i, &bits, out.size() - i);
  for (std::size_t at = 0; at < out.size(); at += stride) put_scales(type, out.data() + at, scale);
}

}  // namespace mooncaf
