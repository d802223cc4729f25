#pragma once
// GGUF's quantised rows as f32.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/ggml_type.hpp"

namespace mooncaf {

/// Expands one row of `out.size()` elements. `row` has row_bytes(type, out.size()) bytes.
void dequantize_row(ggml_type type, std::span<const std::byte> row, std::span<float> out) noexcept;

/// MXFP4's numbers of 4 bits, doubled, by their code; a block's scale, a power of two, halved by its code.
inline constexpr std::int8_t mxfp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
float mxfp4_half_scale(std::uint8_t code) noexcept;

float half_to_float(std::uint16_t bits) noexcept;
float half_at(const std::uint8_t* bytes) noexcept;  ///< of two bytes at any address
std::uint16_t float_to_half(float value) noexcept;  ///< round to nearest even

}  // namespace mooncaf
