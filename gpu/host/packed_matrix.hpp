#pragma once
// Quantised weights in the form that the host kernels read: sixteen rows side by side, one vector lane each.
//
// For each tile of 16 rows and each group of `group` columns, in this order:
//   scale[16], minimum[16]   f16 where the file's are f16 (exact), else f32
//   quants                   unsigned; 8 bits: [group/4][16 rows][4 columns]
//                            4 bits: the same with columns j in the low and j + group/2 in the high half of a
//                            byte
// A weight is scale * quant + minimum; signed formats fold their offset into the minimum. So one loop serves
// all types, for one token and for five hundred.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gpu/ggml_type.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

class thread_pool;
class weight_arena;

struct packed_matrix {
  static constexpr std::size_t tile_rows = 16;

  std::size_t rows = 0;
  std::size_t cols = 0;
  unsigned bits = 8;                ///< 4 or 8
  unsigned group = 32;              ///< columns under one scale: 32 or 16
  unsigned scale_size = 2;          ///< bytes of a scale: 2 (f16) or 4 (f32)
  std::shared_ptr<std::byte> data;  ///< of a `weight_arena`

  std::size_t tiles() const noexcept { return (rows + tile_rows - 1) / tile_rows; }
  std::size_t groups() const noexcept { return cols / group; }
  std::size_t group_bytes() const noexcept { return tile_rows * (2 * scale_size + group * bits / 8); }
  std::size_t tile_bytes() const noexcept { return groups() * group_bytes(); }
  std::size_t size_bytes() const noexcept { return tiles() * tile_bytes(); }
  const std::byte* tile(std::size_t i) const noexcept { return data.get() + i * tile_bytes(); }
};

/// A group of columns of one row: what packed forms store for it.
struct group_values {
  float scale = 0;
  float minimum = 0;
  std::uint8_t quants[32] = {};
};

/// Group `g` of a row in GGUF's form: 16 columns of Q6_K, 32 of the other types that `can_pack` takes.
group_values read_group(ggml_type type, const std::uint8_t* row, std::size_t g);

/// Whether these are the bytes of such a matrix. @error as `device::load_weight`.
result<void> check_matrix(ggml_type type, std::size_t rows, std::size_t cols,
                          std::span<const std::byte> data);

/// Whether `pack` takes this type.
bool can_pack(ggml_type type) noexcept;

/// Repacks a matrix in GGUF's row order. Rows beyond the last one of the final tile are zero.
/// @error `ec::out_of_space`.
result<packed_matrix> pack(ggml_type type, std::size_t rows, std::size_t cols,
                           std::span<const std::byte> data, thread_pool& pool, weight_arena& memory);

/// Activations as the packed kernels want them: per token and 32 columns a scale, 8-bit integers, and their
/// sums.
struct quantized_rows {
  std::size_t cols = 0;
  std::size_t q_stride = 0;  ///< bytes from token to token
  std::size_t groups = 0;    ///< of 32 columns
  std::int8_t* q = nullptr;  ///< [tokens, q_stride]
  float* scale = nullptr;    ///< [tokens, groups]
  float* sum32 = nullptr;    ///< [tokens, groups]: scale * sum of q over 32 columns
  float* sum16 = nullptr;    ///< [tokens, 2 * groups]: the same over 16
};

}  // namespace mooncaf
