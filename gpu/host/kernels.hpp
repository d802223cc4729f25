#pragma once
// The inner loops of the host device, compiled once per instruction set (kernels/) and chosen at run time.
//
// Every function computes a token's numbers in one fixed order, whatever else is in the call: that is where
// the device's batch invariance comes from.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/copy_queue.hpp"
#include "gpu/host/packed_matrix.hpp"
#include "gpu/kv_form.hpp"
#include "runtime/base/kv_layout.hpp"

namespace mooncaf {

/// Part of an attention call: some query tokens of one sequence against one KV head.
struct attention_task {
  const kv_layout* layout = nullptr;
  std::uint32_t layer = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t group = 1;  ///< query heads, of those that share the KV head
  float scale = 1;
  std::uint32_t window = 0;  ///< as in `attention_form`
  float softcap = 0;
  const float* sinks = nullptr;  ///< of the task's first head; null: none
  std::span<const device_bytes> blocks;
  std::uint32_t first_position = 0;  ///< of the first query token
  std::uint32_t tokens = 0;
  const float* q = nullptr;  ///< first token's first head of the group
  std::size_t q_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;

  /// The key or value at a position.
  const std::byte* row(std::uint32_t position, bool value) const noexcept {
    return blocks[position / layout->block_tokens].at +
           layout->offset(layer, kv_head, value, position % layout->block_tokens);
  }
};

struct kernel_set {
  const char* isa;

  /// One token: 8-bit integers per 32 columns, scale = max |x| / 127. cols is a multiple of 32.
  void (*quantize)(const float* x, std::size_t cols, std::int8_t* q, float* scale, float* sum32,
                   float* sum16);
  /// Rows [16 tile, 16 tile + 16) of the product for tokens [begin, end).
  void (*matmul_packed)(const packed_matrix& w, std::size_t tile, const quantized_rows& x, std::size_t begin,
                        std::size_t end, float* out, std::size_t out_stride, const float* bias);
  /// The same for one tile of F32, F16 or BF16 weights, laid out as `pack_plain` does it.
  void (*matmul_plain)(ggml_type type, const std::byte* tile, std::size_t cols, const float* x,
                       std::size_t x_stride, std::size_t tokens, float* out, std::size_t out_stride,
                       std::size_t valid_rows, const float* bias);
  void (*rms_norm)(const float* x, const float* gain, float eps, std::size_t n, float* out);
  void (*swiglu)(const float* gate, const float* up, std::size_t n, float* out);
  void (*geglu)(const float* gate, const float* up, std::size_t n, float* out);
  void (*clamped_swiglu)(const float* gate, const float* up, float limit, std::size_t n, float* out);
  void (*add)(float* x, const float* y, std::size_t n);
  void (*soft_cap)(float* x, float cap, std::size_t n);
  /// One head in place: pairs turn by the angles whose cosines and sines `turn` holds, [n] each, laid out as
  /// `rotation` says: a pair's cosine at both its places, its sine negated at the first.
  void (*rope)(float* x, const float* turn, std::size_t n, bool neox);
  void (*to_half)(const float* x, std::size_t n, std::uint16_t* out);
  /// `int8_row::write`, to the same bytes.
  void (*to_int8)(const float* x, std::size_t n, std::byte* out);
  void (*to_int4)(const float* x, std::size_t n, std::byte* out);  ///< the same of `int4_row`
  /// @param scratch  `attention_scratch_floats(...)` floats, 64-byte aligned, this thread's own.
  void (*attention)(const attention_task& task, float* scratch);
};

/// Floats of scratch memory that one attention call of `rows` = tokens * group query rows needs.
constexpr std::size_t attention_scratch_floats(std::uint32_t head_dim, std::size_t rows) noexcept {
  const std::size_t dim = (head_dim + std::size_t{31}) / 32 * 32;
  return 72 * dim + 128 + rows * (dim / 2 + dim + 3) + 5 * 16;
}

const kernel_set& portable_kernels() noexcept;
const kernel_set& avx2_kernels() noexcept;
const kernel_set& avx512_kernels() noexcept;

}  // namespace mooncaf
