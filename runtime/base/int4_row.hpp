#pragma once
// A row of values in 4-bit integers, in groups of 32 dimensions with a scale of their own:
//
//   [scale, f32][multiplier, u8 x groups][0 up to a multiple of 8][8 bytes for every 16 dimensions]
//
// A number is its integer, -7 to 7, times its group's multiplier, 0 to 255, times the row's scale. So a row is integers of
// 12 bits with one scale, as the products of attention take it. Byte j of a piece of 16 dimensions has dimension j in its low
// half and dimension 8 + j in its high half, in two's complement.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace mooncaf {

struct int4_row {
  static constexpr std::size_t group = 32;
  static constexpr std::size_t multipliers_at = 4;
  static constexpr float most = 7, most_multiplier = 255;

  static constexpr std::size_t header_bytes(std::size_t dims) noexcept {
    return (multipliers_at + (dims + group - 1) / group + 7) / 8 * 8;
  }
  static constexpr std::size_t bytes(std::size_t dims) noexcept {
    return header_bytes(dims) + (dims + 15) / 16 * 8;
  }

  /// Factors of a row whose largest magnitude is `top`; all 0 for a row of zeros.
  struct factors {
    float scale, multiplier_of, units;
    explicit factors(float top) noexcept
        : scale(top > 1e-30f ? top * (1.0f / (most * most_multiplier)) : 0.0f),
          multiplier_of(top > 1e-30f ? most_multiplier / top : 0.0f),
          units(top > 1e-30f ? most * most_multiplier / top : 0.0f) {}
    /// @param top  largest magnitude of a group
    float multiplier(float top) const noexcept {
      return std::min(most_multiplier, std::ceil(top * multiplier_of));
    }
    float inverse(float multiplier) const noexcept { return multiplier > 0 ? units / multiplier : 0.0f; }
  };

  static float scale_of(const std::byte* row) noexcept {
    float scale;
    std::memcpy(&scale, row, sizeof scale);
    return scale;
  }
  static std::int32_t multiplier_of(const std::byte* row, std::size_t i) noexcept {
    return std::to_integer<std::int32_t>(row[multipliers_at + i / group]);
  }
  static float number(const std::byte* row, std::size_t dims, std::size_t i) noexcept {
    const auto both = std::to_integer<std::uint32_t>(row[header_bytes(dims) + i / 16 * 8 + i % 8]);
    const auto half = static_cast<std::int32_t>(i % 16 < 8 ? both & 15 : both >> 4);
    return scale_of(row) * static_cast<float>(((half ^ 8) - 8) * multiplier_of(row, i));
  }

  /// Codes `x` at `row`, which has `bytes(x.size())`. Numbers round to the nearest integer, halves to the even one.
  static void write(std::span<const float> x, std::byte* row) noexcept {
    const auto top_of = [](std::span<const float> some) {
      float top = 0;
      for (const float v : some) top = std::max(top, std::abs(v));
      return top;
    };
    const factors by(top_of(x));
    begin(by.scale, x.size(), row);
    auto* to = row + header_bytes(x.size());
    for (std::size_t i = 0; i < x.size(); i += group) {
      const auto some = x.subspan(i, std::min(group, x.size() - i));
      const float multiplier = by.multiplier(top_of(some)), inverse = by.inverse(multiplier);
      row[multipliers_at + i / group] = static_cast<std::byte>(multiplier);
      for (std::size_t j = 0; j < some.size(); ++j) {
        const float whole =
            std::nearbyint(some[j] * inverse);  // not a number where the row has an infinite one
        put(to, i + j, std::abs(whole) <= most ? static_cast<std::int32_t>(whole) : whole > 0 ? 7 : -7);
      }
    }
  }
  /// A row of zeros but for its scale.
  static void begin(float scale, std::size_t dims, std::byte* row) noexcept {
    std::memset(row, 0, bytes(dims));
    std::memcpy(row, &scale, sizeof scale);
  }
  /// Integer `i` of a row whose integers are 0 yet. @param to  behind the header
  static void put(std::byte* to, std::size_t i, std::int32_t integer) noexcept {
    to[i / 16 * 8 + i % 8] |= static_cast<std::byte>((integer & 15) << (i % 16 < 8 ? 0 : 4));
  }
};

}  // namespace mooncaf
