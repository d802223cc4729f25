#pragma once
// Sixteen neighbouring weights of a row, in every form that matrices have in device memory.

#include "gpu/cuda/kernel_params.hpp"
#include "gpu/cuda/simt.hpp"

namespace mooncaf::cuda {

using namespace mooncaf::simt;

struct scale_pair {
  float scale;
  float minimum;
};

MOONCAF_DEVICE scale_pair load_scales(const weight_view& w, std::size_t index) {
  if (w.wide_scales != 0) {
    const words2 pair = load8(w.scales + 8 * index);
    return {float_from_bits(pair.w[0]), float_from_bits(pair.w[1])};
  }
  const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(w.scales + 4 * index);
  return {half_value(static_cast<std::uint16_t>(pair)), half_value(static_cast<std::uint16_t>(pair >> 16))};
}

MOONCAF_DEVICE float byte_value(std::uint32_t word, unsigned i) {
  return static_cast<float>(word >> 8 * i & 255u);
}

/// The number of the lowest four bits. Its exponent and digit are a half's, but for the bias.
MOONCAF_DEVICE float fp4_value(std::uint32_t bits) {
  return half_value(static_cast<std::uint16_t>((bits & 7u) << 9 | (bits & 8u) << 12)) * 16384;
}

/// Columns [64 chunk + 16 part, + 16) of a row, as f32.
template <weight_form Form>
MOONCAF_DEVICE void load_weights(const weight_view& w, std::size_t row, unsigned chunk, unsigned part,
                                 float (&out)[16]) {
  const std::size_t at = (row * w.chunks + chunk) * chunk_columns + 16 * part;
  if constexpr (Form == weight_form::nibbles || Form == weight_form::fives || Form == weight_form::bytes ||
                Form == weight_form::bytes_by_sixteen) {
    constexpr unsigned groups = Form == weight_form::bytes_by_sixteen ? 4 : 2;
    const auto s = load_scales(w, (row * w.chunks + chunk) * groups + part * groups / 4);
    if constexpr (Form == weight_form::nibbles) {
      const words2 packed = load8(w.values + at / 2);
      MOONCAF_UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        out[i] = fused(byte_value(packed.w[i / 4] & 0x0F0F0F0Fu, i % 4), s.scale, s.minimum);
        out[i + 8] = fused(byte_value(packed.w[i / 4] >> 4 & 0x0F0F0F0Fu, i % 4), s.scale, s.minimum);
      }
    } else if constexpr (Form == weight_form::fives) {
      const std::byte* const own = w.values + (row * w.chunks + chunk) * 40;
      const words2 packed = load8(own + 8 * part);
      const std::uint32_t high = *reinterpret_cast<const std::uint16_t*>(own + 32 + 2 * part);
      MOONCAF_UNROLL
      for (unsigned i = 0; i < 8; ++i) {
        const std::uint32_t pair = packed.w[i / 4] >> 8 * (i % 4);
        out[i] = fused(static_cast<float>((pair & 15u) | (high >> i & 1u) << 4), s.scale, s.minimum);
        out[i + 8] =
            fused(static_cast<float>((pair >> 4 & 15u) | (high >> (i + 8) & 1u) << 4), s.scale, s.minimum);
      }
    } else {
      const words4 packed = load16(w.values + at);
      MOONCAF_UNROLL
      for (unsigned i = 0; i < 16; ++i)
        out[i] = fused(byte_value(packed.w[i / 4], i % 4), s.scale, s.minimum);
    }
  } else if constexpr (Form == weight_form::fp4) {
    const auto exponent = static_cast<std::uint32_t>(w.scales[(row * w.chunks + chunk) * 2 + part / 2]);
    const float scale = exponent == 0 ? 0x1p-127f : float_from_bits(exponent << 23);
    const words2 packed = load8(w.values + at / 2);
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      const std::uint32_t pair = packed.w[i / 4] >> 8 * (i % 4);
      out[i] = fp4_value(pair) * scale;
      out[i + 8] = fp4_value(pair >> 4) * scale;
    }
  } else if constexpr (Form == weight_form::f32) {
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const words4 four = load16(w.values + 4 * at + 16 * i);
      MOONCAF_UNROLL
      for (unsigned j = 0; j < 4; ++j) out[4 * i + j] = float_from_bits(four.w[j]);
    }
  } else {
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      const words4 eight = load16(w.values + 2 * at + 16 * i);
      MOONCAF_UNROLL
      for (unsigned j = 0; j < 8; ++j) {
        const auto bits = static_cast<std::uint16_t>(eight.w[j / 2] >> 16 * (j % 2));
        out[8 * i + j] = Form == weight_form::f16 ? half_value(bits) : bfloat_value(bits);
      }
    }
  }
}

}  // namespace mooncaf::cuda
