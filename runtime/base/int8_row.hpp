#pragma once
// A row of keys or values in 8-bit integers: [scale, f32][0, 4 bytes][int8 x dims][0 up to a multiple of 8].
//
// A number is its integer times the row's scale, the largest magnitude over 127: the error is at most 0.4 % of the row's
// largest number. A row is coded by itself, so nothing that comes later changes it. Its bytes are a multiple of 8, which is
// what devices copy and checksum by.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace mooncaf {

struct int8_row {
  static constexpr std::size_t header_bytes = 8;
  static constexpr float most = 127;

  static constexpr std::size_t bytes(std::size_t dims) noexcept { return header_bytes + (dims + 7) / 8 * 8; }

  static float scale_of(const std::byte* row) noexcept {
    float scale;
    std::memcpy(&scale, row, sizeof scale);
    return scale;
  }
  static float number(const std::byte* row, std::size_t i) noexcept {
    return scale_of(row) * static_cast<float>(static_cast<std::int8_t>(row[header_bytes + i]));
  }

  /// Codes `x` at `row`, which has `bytes(x.size())`. Numbers round to the nearest integer, halves to the even one.
  static void write(std::span<const float> x, std::byte* row) noexcept {
    float top = 0;
    for (const float v : x) top = std::max(top, std::abs(v));
    const float inverse = top > 1e-30f ? most / top : 0.0f;
    begin(top > 1e-30f ? top * (1.0f / most) : 0.0f, x.size(), row);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float whole = std::nearbyint(x[i] * inverse);  // not a number where the row has an infinite one
      row[header_bytes + i] =
          static_cast<std::byte>(std::abs(whole) <= most ? static_cast<std::int8_t>(whole) : 0);
    }
  }
  /// All of a row but its integers.
  static void begin(float scale, std::size_t dims, std::byte* row) noexcept {
    std::memset(row, 0, header_bytes);
    std::memcpy(row, &scale, sizeof scale);
    if (const auto end = bytes(dims); end > header_bytes + dims)
      std::memset(row + header_bytes + dims, 0, end - header_bytes - dims);
  }
};

}  // namespace mooncaf
