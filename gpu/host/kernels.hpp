#pragma once
// The inner loops of the host device, compiled once per instruction set and chosen at run time.
//
// Every function computes a token's numbers in one fixed order, whatever else is in the call: that is where the
// device's batch invariance comes from.

#include "gpu/host/packed_matrix.hpp"
#include "runtime/base/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace mooncaf {

/// Part of an attention call: up to `max_tokens` query tokens of one sequence against one KV head.
struct attention_task {
  static constexpr std::size_t max_tokens = 16;

  const kv_layout* layout = nullptr;
  std::uint32_t layer = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t group = 1;                 ///< query heads per KV head
  float scale = 1;
  std::span<std::byte* const> blocks;
  std::uint32_t first_position = 0;        ///< of the first query token
  std::uint32_t tokens = 0;
  const float* q = nullptr;                ///< first token's first head of the group
  std::size_t q_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
};

struct kernel_set {
  const char* isa;

  /// One token: 8-bit integers per 32 columns, scale = max |x| / 127. cols is a multiple of 32.
  void (*quantize)(const float* x, std::size_t cols, std::int8_t* q, float* scale, float* sum32, float* sum16);
  /// Rows [16 tile, 16 tile + 16) of the product for tokens [begin, end).
  void (*matmul_packed)(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t begin,
                        std::size_t end, float* out, std::size_t out_stride, const float* bias);
  /// The same for f32 weights stored [tile][column][16 rows].
  void (*matmul_plain)(const float* tile, std::size_t cols, const float* x, std::size_t x_stride, std::size_t tokens,
                       float* out, std::size_t out_stride, std::size_t valid_rows, const float* bias);
  void (*rms_norm)(const float* x, const float* gain, float eps, std::size_t n, float* out);
  void (*swiglu)(const float* gate, const float* up, std::size_t n, float* out);
  void (*add)(float* x, const float* y, std::size_t n);
  void (*to_half)(const float* x, std::size_t n, std::uint16_t* out);
  /// @param scratch  `attention_scratch_floats(...)` floats, 64-byte aligned, this thread's own.
  void (*attention)(const attention_task& task, float* scratch);
};

/// Floats of scratch memory that one attention call needs.
constexpr std::size_t attention_scratch_floats(std::uint32_t head_dim, std::uint32_t group) noexcept {
  const std::size_t dim = (head_dim + 15) / 16 * 16;
  const std::size_t rows = attention_task::max_tokens * group;
  return 2 * 64 * dim + rows * (64 + 2 * dim + 4);
}

const kernel_set& portable_kernels() noexcept;
const kernel_set& avx2_kernels() noexcept;
const kernel_set& avx512_kernels() noexcept;

}  // namespace mooncaf
