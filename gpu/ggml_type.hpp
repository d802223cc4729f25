#pragma once
// Element types of GGUF tensors that mooncaf reads; numbers are the file format's own.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mooncaf {

enum class ggml_type : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
  mxfp4 = 39,
};

/// Elements that share one quantisation block; 1 for plain types, 0 for a type we do not read.
constexpr std::size_t block_elements(ggml_type t) noexcept {
  switch (t) {
    case ggml_type::f32:
    case ggml_type::f16:
    case ggml_type::bf16:
      return 1;
    case ggml_type::q4_0:
    case ggml_type::q4_1:
    case ggml_type::q8_0:
    case ggml_type::mxfp4:
      return 32;
    case ggml_type::q4_k:
    case ggml_type::q5_k:
    case ggml_type::q6_k:
      return 256;
  }
  return 0;
}

/// Bytes of one quantisation block.
constexpr std::size_t block_bytes(ggml_type t) noexcept {
  switch (t) {
    case ggml_type::f32:
      return 4;
    case ggml_type::f16:
    case ggml_type::bf16:
      return 2;
    case ggml_type::mxfp4:
      return 17;
    case ggml_type::q4_0:
      return 18;
    case ggml_type::q4_1:
      return 20;
    case ggml_type::q8_0:
      return 34;
    case ggml_type::q4_k:
      return 144;
    case ggml_type::q5_k:
      return 176;
    case ggml_type::q6_k:
      return 210;
  }
  return 0;
}

/// Bytes of a row of `elements`; 0 if the type is unknown or the row is not a whole number of blocks.
constexpr std::size_t row_bytes(ggml_type t, std::size_t elements) noexcept {
  const auto per_block = block_elements(t);
  return per_block == 0 || elements % per_block != 0 ? 0 : elements / per_block * block_bytes(t);
}

constexpr std::string_view to_string(ggml_type t) noexcept {
  switch (t) {
    case ggml_type::f32:
      return "F32";
    case ggml_type::f16:
      return "F16";
    case ggml_type::bf16:
      return "BF16";
    case ggml_type::q4_0:
      return "Q4_0";
    case ggml_type::q4_1:
      return "Q4_1";
    case ggml_type::q8_0:
      return "Q8_0";
    case ggml_type::q4_k:
      return "Q4_K";
    case ggml_type::q5_k:
      return "Q5_K";
    case ggml_type::q6_k:
      return "Q6_K";
    case ggml_type::mxfp4:
      return "MXFP4";
  }
  return "unknown";
}

}  // namespace mooncaf
