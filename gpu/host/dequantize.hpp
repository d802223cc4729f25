#pragma once
// GGUF's quantised rows as f32.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/ggml_type.hpp"

namespace mooncaf {

/// Expands one row of `out.size()` elements. `row` has row_bytes(type, out.size()) bytes.
void dequantize_row(ggml_type type, std::span<const std::byte> row, std::span<float> out) noexcept;

float half_to_float(std::uint16_t bits) noexcept;
std::uint16_t float_to_half(float value) noexcept;  ///< round to nearest even

}  // namespace mooncaf
