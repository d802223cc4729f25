#pragma once
// out = x · wᵀ on tensor cores: weights are the 16-row operand, tokens the 8-column one.
//
// One order of summation for every number of tokens: warp i of a block takes chunks i, i + 4, ...; in a chunk
// four steps of sixteen columns each (columns 16 part + 4 step + {0..3} of all four parts); at the end the
// four warps' sums are added as (0 + 1) + (2 + 3). A token's column of the operand has no influence on its
// neighbours'.

#include "gpu/cuda/weights.cuh"

namespace mooncaf::cuda {

/// Rows `row` and `row + 8` of a chunk as the fragments of four steps.
template <weight_form Form>
MOONCAF_DEVICE void load_fragments(const weight_view& w, std::size_t row, unsigned chunk, unsigned part,
                                   std::uint32_t (&a)[4][4]) {
  MOONCAF_UNROLL
  for (unsigned below = 0; below < 2; ++below) {
    float values[16];
    load_weights<Form>(w, row + 8 * below, chunk, part, values);
    MOONCAF_UNROLL
    for (unsigned step = 0; step < 4; ++step) {
      a[step][below] = pack_half2(values[4 * step], values[4 * step + 1]);
      a[step][2 + below] = pack_half2(values[4 * step + 2], values[4 * step + 3]);
    }
  }
}

/// grid: rows / (16 RowTiles), tokens / (8 TokenTiles), both rounded up
template <weight_form Form, unsigned RowTiles, unsigned TokenTiles>
MOONCAF_DEVICE void multiply(const product_params& p, float* sums) {
  constexpr unsigned rows = 16 * RowTiles, tokens = 8 * TokenTiles, pitch = rows + 4;
  const unsigned warp = thread_index() / warp_threads, lane = thread_index() % warp_threads;
  const unsigned group = lane / 4, part = lane % 4;
  const std::size_t first_row = std::size_t{block_x()} * rows;
  const unsigned first_token = block_y() * tokens;
  float acc[RowTiles][TokenTiles][4] = {};
  for (unsigned chunk = warp; chunk < p.w.chunks; chunk += product_warps) {
    std::uint32_t a[RowTiles][4][4];
    MOONCAF_UNROLL
    for (unsigned m = 0; m < RowTiles; ++m)
      load_fragments<Form>(p.w, first_row + 16 * m + group, chunk, part, a[m]);
    MOONCAF_UNROLL
    for (unsigned n = 0; n < TokenTiles; ++n) {
      const unsigned token = first_token + 8 * n + group;
      words4 x[2] = {};
      if (token < p.tokens) {
        const auto* at = p.x + (std::size_t{token} * p.w.chunks + chunk) * chunk_columns + 16 * part;
        x[0] = load16(at);
        x[1] = load16(at + 8);
      }
      MOONCAF_UNROLL
      for (unsigned step = 0; step < 4; ++step) MOONCAF_UNROLL
      for (unsigned m = 0; m < RowTiles; ++m)
        mma_16x8x16(acc[m][n], a[m][step], x[step / 2].w[step % 2 * 2], x[step / 2].w[step % 2 * 2 + 1]);
    }
  }
  MOONCAF_UNROLL
  for (unsigned m = 0; m < RowTiles; ++m) MOONCAF_UNROLL
  for (unsigned n = 0; n < TokenTiles; ++n) MOONCAF_UNROLL
  for (unsigned i = 0; i < 4; ++i)
    sums[(warp * tokens + 8 * n + 2 * part + i % 2) * pitch + 16 * m + group + i / 2 * 8] = acc[m][n][i];
  sync_block();
  for (unsigned i = thread_index(); i < rows * tokens; i += product_threads) {
    const unsigned row = i % rows, token = i / rows;
    if (first_row + row >= p.w.rows || first_token + token >= p.tokens) continue;
    const float* at = sums + token * pitch + row;
    constexpr unsigned next = tokens * pitch;
    const float sum = (at[0] + at[next]) + (at[2 * next] + at[3 * next]);
    const float scale = p.x_scale[first_token + token];
    const float bias = p.bias != nullptr ? p.bias[first_row + row] : 0;
    p.out[(first_token + token) * p.out_stride + first_row + row] = fused(sum, scale, bias);
  }
}

}  // namespace mooncaf::cuda

/// grid: tokens, rows / product_warps rounded up. A warp takes a row of weights; lane i adds columns i, i +
/// 32, … in their order, whatever the number of tokens.
MOONCAF_KERNEL(mooncaf_product_wide, mooncaf::cuda::wide_product_params, mooncaf::cuda::product_threads) {
  using namespace mooncaf::cuda;
  const unsigned lane = thread_index() % warp_threads;
  const unsigned row = block_y() * product_warps + thread_index() / warp_threads;
  const float* x = p.x + block_x() * p.x_stride;
  float sum = 0;
  if (row < p.w.rows) {
    const auto* w =
        reinterpret_cast<const float*>(p.w.values) + std::size_t{row} * p.w.chunks * chunk_columns;
    for (unsigned i = lane; i < p.cols; i += warp_threads) sum = fused(x[i], w[i], sum);
  }
  sum = warp_sum(sum);
  if (lane != 0 || row >= p.w.rows) return;
  p.out[block_x() * p.out_stride + row] = sum + (p.bias != nullptr ? p.bias[row] : 0);
}

#define MOONCAF_PRODUCT(FORM, SIZE, ROW_TILES, TOKEN_TILES)                              \
  MOONCAF_KERNEL(mooncaf_product_##FORM##_##SIZE, mooncaf::cuda::product_params,         \
                 mooncaf::cuda::product_threads) {                                       \
    using namespace mooncaf::cuda;                                                       \
    MOONCAF_SHARED(float, sums, product_warps * 8 * TOKEN_TILES * (16 * ROW_TILES + 4)); \
    multiply<weight_form::FORM, ROW_TILES, TOKEN_TILES>(p, sums);                        \
  }
// Few tokens, where memory is the limit, and many, where tensor cores are (kernels.hpp: `few_tokens`).
#define MOONCAF_PRODUCTS(FORM)     \
  MOONCAF_PRODUCT(FORM, few, 1, 1) \
  MOONCAF_PRODUCT(FORM, many, 2, 8)

MOONCAF_PRODUCTS(nibbles)
MOONCAF_PRODUCTS(fives)
MOONCAF_PRODUCTS(bytes)
MOONCAF_PRODUCTS(bytes_by_sixteen)
MOONCAF_PRODUCTS(fp4)
MOONCAF_PRODUCTS(f16)
MOONCAF_PRODUCTS(bf16)
MOONCAF_PRODUCTS(f32)
