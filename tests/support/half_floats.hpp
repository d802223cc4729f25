#pragma once
// Numbers as tensors have them, in 16 bits: normal ones, each channel of 64 with a scale of its own.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace mooncaf::test {

/// @param code  of a number, as two bytes.
template <class Code>
std::vector<std::byte> numbers_in(std::size_t n, std::mt19937_64& random, const Code& code) {
  std::normal_distribution<float> normal;
  std::vector<float> scale(64);
  for (auto& s : scale) s = std::exp(normal(random) * 0.5f);
  std::vector<std::byte> out(2 * n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t x = code(normal(random) * scale[i % scale.size()]);
    std::memcpy(&out[2 * i], &x, sizeof x);
  }
  return out;
}

inline std::vector<std::byte> bf16_numbers(std::size_t n, std::mt19937_64& random) {
  return numbers_in(
      n, random, [](float x) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); });
}

/// Cut off, not rounded; what is too small for F16 is zero.
inline std::vector<std::byte> f16_numbers(std::size_t n, std::mt19937_64& random) {
  return numbers_in(n, random, [](float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto exponent = static_cast<int>(bits >> 23 & 255) - 112;
    const auto sign = bits >> 16 & 0x8000;
    if (exponent <= 0 || exponent > 30) return static_cast<std::uint16_t>(sign);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent) << 10 |
                                      (bits >> 13 & 1023));
  });
}

}  // namespace mooncaf::test
