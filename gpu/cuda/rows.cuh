#pragma once
// Kernels that go through rows of activations: one block of threads per row.

#include "gpu/cuda/kernel_params.hpp"
#include "gpu/cuda/simt.hpp"
#include "gpu/cuda/weights.cuh"

namespace mooncaf::cuda {

/// The value of all threads of the block, equal in all: sums of warps are added in their order.
/// @param parts  shared, one for each warp; free again behind the next barrier
MOONCAF_DEVICE float block_sum(float x, float* parts) {
  x = warp_sum(x);
  if (thread_index() % warp_threads == 0) parts[thread_index() / warp_threads] = x;
  sync_block();
  float total = 0;
  for (unsigned i = 0; i < row_threads / warp_threads; ++i) total += parts[i];
  return total;
}
MOONCAF_DEVICE float block_max(float x, float* parts) {
  x = warp_max(x);
  if (thread_index() % warp_threads == 0) parts[thread_index() / warp_threads] = x;
  sync_block();
  float most = parts[0];
  for (unsigned i = 1; i < row_threads / warp_threads; ++i) most = larger(most, parts[i]);
  return most;
}

template <weight_form Form>
MOONCAF_DEVICE void embed_row(const embed_params& p) {
  const auto row = static_cast<std::size_t>(p.tokens[block_x()]);
  float* out = p.out + block_x() * p.stride;
  for (unsigned i = thread_index(); 16 * i < p.cols; i += row_threads) {
    float values[16];
    load_weights<Form>(p.table, row, i / 4, i % 4, values);
    MOONCAF_UNROLL
    for (unsigned j = 0; j < 16; ++j)
      if (16 * i + j < p.cols) out[16 * i + j] = values[j];
  }
}

/// Cosine and sine of an angle in radians, to a unit in the last place of f32. In f64 down to a quarter turn,
/// and then polynomials that are short there: the library's functions keep a table on the stack for angles
/// beyond 10^5.
MOONCAF_DEVICE void turn(float angle, float& cosine, float& sine) {
  const double quarters = nearest(static_cast<double>(angle) * 0.63661977236758134308);
  const double rest = fused(-quarters, 1.57079632679489661923, static_cast<double>(angle));
  const auto x = static_cast<float>(rest);
  const float z = x * x;
  float s = fused(z, 2.7557319e-6f, -1.9841270e-4f);
  s = fused(z, s, 8.3333333e-3f);
  s = fused(z, s, -1.6666667e-1f);
  s = fused(z * x, s, x);
  float c = fused(z, -2.7557319e-7f, 2.4801587e-5f);
  c = fused(z, c, -1.3888889e-3f);
  c = fused(z, c, 4.1666667e-2f);
  c = fused(z, c, -0.5f);
  c = fused(z, c, 1.0f);
  const auto quadrant = static_cast<unsigned>(static_cast<long long>(quarters)) & 3u;
  const bool swapped = (quadrant & 1u) != 0;
  cosine = swapped ? s : c;
  sine = swapped ? c : s;
  if (quadrant == 1 || quadrant == 2) cosine = -cosine;
  if (quadrant >= 2) sine = -sine;
}

}  // namespace mooncaf::cuda

/// grid: tokens
MOONCAF_KERNEL(mooncaf_embed, mooncaf::cuda::embed_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  switch (p.table.form) {
    case weight_form::nibbles:
      return embed_row<weight_form::nibbles>(p);
    case weight_form::fives:
      return embed_row<weight_form::fives>(p);
    case weight_form::bytes:
      return embed_row<weight_form::bytes>(p);
    case weight_form::bytes_by_sixteen:
      return embed_row<weight_form::bytes_by_sixteen>(p);
    case weight_form::fp4:
      return embed_row<weight_form::fp4>(p);
    case weight_form::f16:
      return embed_row<weight_form::f16>(p);
    case weight_form::bf16:
      return embed_row<weight_form::bf16>(p);
    case weight_form::f32:
      return embed_row<weight_form::f32>(p);
  }
}

/// grid: tokens, heads
MOONCAF_KERNEL(mooncaf_norm, mooncaf::cuda::norm_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(float, parts, row_threads / warp_threads);
  const std::size_t head = std::size_t{block_y()} * p.dim;
  const float* x = p.x + block_x() * p.x_stride + head;
  float* out = p.out + block_x() * p.out_stride + head;
  float squares = 0;
  for (unsigned i = thread_index(); i < p.dim; i += row_threads) squares = fused(x[i], x[i], squares);
  squares = block_sum(squares, parts);
  const float factor = 1 / square_root(squares / static_cast<float>(p.dim) + p.eps);
  for (unsigned i = thread_index(); i < p.dim; i += row_threads) out[i] = x[i] * factor * p.gain[i];
}

/// grid: tokens
MOONCAF_KERNEL(mooncaf_halve, mooncaf::cuda::halve_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(float, parts, row_threads / warp_threads);
  const float* x = p.x + block_x() * p.stride;
  float most = 0;
  for (unsigned i = thread_index(); i < p.cols; i += row_threads) most = larger(most, magnitude(x[i]));
  most = block_max(most, parts);
  // Exponents of f32 with their bias of 127; 14 is the largest of a half's that leaves room to round up.
  int shift = static_cast<int>(bits_of(most) >> 23) - 127 - 14;
  shift = most == 0 ? 0 : shift < -100 ? -100 : shift > 100 ? 100 : shift;
  const float down = float_from_bits(static_cast<std::uint32_t>(127 - shift) << 23);
  auto* out = reinterpret_cast<std::uint32_t*>(p.halves + std::size_t{block_x()} * p.chunks * chunk_columns);
  for (unsigned i = thread_index(); i < p.chunks * chunk_columns / 2; i += row_threads) {
    const float a = 2 * i < p.cols ? x[2 * i] * down : 0, b = 2 * i + 1 < p.cols ? x[2 * i + 1] * down : 0;
    out[i] = pack_half2(a, b);
  }
  if (thread_index() == 0)
    p.scale[block_x()] = float_from_bits(static_cast<std::uint32_t>(127 + shift) << 23);
}

/// grid: tokens
MOONCAF_KERNEL(mooncaf_rope, mooncaf::cuda::rope_launch, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  float* row = p.x + block_x() * p.stride;
  const auto position = static_cast<float>(p.positions[block_x()]);
  for (unsigned i = thread_index(); i < p.heads * p.half; i += row_threads) {
    const unsigned pair = i % p.half;
    float* head = row + std::size_t{i / p.half} * p.head_dim;
    float cosine, sine;
    turn(position * p.inv_freq[pair], cosine, sine);
    cosine *= p.scale;
    sine *= p.scale;
    float& a = head[p.neox != 0 ? pair : 2 * pair];
    float& b = head[p.neox != 0 ? pair + p.half : 2 * pair + 1];
    const float before = a, beside = b;
    a = fused(before, cosine, -(beside * sine));
    b = fused(before, sine, beside * cosine);
  }
}

namespace mooncaf::cuda {

/// A key or a value of the block's token: where its numbers come from and go to.
struct kv_row {
  const float* from;
  std::byte* to;
  kv_form form;
  unsigned header;
};

/// @param i  keys and values of each head by turns; keys alone, where values are their keys
MOONCAF_DEVICE kv_row row_of(const kv_write_params& p, std::byte* block, unsigned i) {
  const unsigned of_head = 2 - p.kv.shared, head = i / of_head;
  const bool value = i % of_head == 1;
  const float* from = value ? p.v + block_x() * p.v_stride : p.k + block_x() * p.k_stride;
  std::byte* to = block + std::size_t{head} * p.kv.head_bytes + (value ? p.kv.value_offset : 0);
  return {from + std::size_t{head} * p.kv.head_dim, to, value ? p.kv.values : p.kv.keys,
          value ? p.kv.value_header : p.kv.key_header};
}

/// Largest magnitude of a row, in all lanes of the warp.
MOONCAF_DEVICE float warp_top(const float* row, unsigned begin, unsigned end) {
  float top = 0;
  for (unsigned i = begin + thread_index() % warp_threads; i < end; i += warp_threads)
    top = larger(top, magnitude(row[i]));
  return warp_max(top);
}

/// A warp writes a row as `int8_row` has it; its lanes four numbers at a time.
MOONCAF_DEVICE void write_int8(const kv_row& row, unsigned dims) {
  const unsigned lane = thread_index() % warp_threads;
  const float top = warp_top(row.from, 0, dims);
  const bool any = top > 1e-30f;
  const float inverse = any ? 127.0f / top : 0.0f;
  auto* words = reinterpret_cast<std::uint32_t*>(row.to);
  if (lane < 2) words[lane] = lane == 0 && any ? bits_of(top * (1.0f / 127.0f)) : 0;
  for (unsigned i = lane; i < dims / 4; i += warp_threads) {
    std::uint32_t four = 0;
    MOONCAF_UNROLL
    for (unsigned j = 0; j < 4; ++j) {
      const auto whole = static_cast<int>(nearest(static_cast<double>(row.from[4 * i + j] * inverse)));
      four |= (static_cast<std::uint32_t>(whole) & 0xFFu) << (8 * j);
    }
    words[row.header / 4 + i] = four;
  }
}

/// The same of `int4_row`, whose words have dimensions 4 j to 4 j + 3 of a piece of 16 and those 8 behind them.
MOONCAF_DEVICE void write_int4(const kv_row& row, unsigned dims) {
  const unsigned lane = thread_index() % warp_threads;
  const unsigned groups = (dims + int4_group - 1) / int4_group;
  const float top = warp_top(row.from, 0, dims);
  const bool any = top > 1e-30f;
  const float multiplier_of = any ? 255.0f / top : 0.0f, units = any ? 1785.0f / top : 0.0f;
  for (unsigned group = 0; group < groups; ++group) {
    const unsigned begin = group * int4_group, end = begin + int4_group < dims ? begin + int4_group : dims;
    const float multiplier = smaller(255.0f, rounded_up(warp_top(row.from, begin, end) * multiplier_of));
    const float inverse = multiplier > 0 ? units / multiplier : 0.0f;
    if (lane == 0)
      row.to[int4_multipliers_at + group] = static_cast<std::byte>(static_cast<unsigned>(multiplier));
    const unsigned first = begin + lane / 2 * 16 + lane % 2 * 4;  // of this lane's word
    if (lane >= 4 || begin + lane / 2 * 16 >= dims) continue;
    std::uint32_t word = 0;
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned at = first + i % 4 + i / 4 * 8;
      const float scaled = at < dims ? row.from[at] * inverse : 0.0f;
      const auto whole = static_cast<int>(nearest(static_cast<double>(smaller(7.0f, larger(-7.0f, scaled)))));
      word |= (static_cast<std::uint32_t>(whole) & 15u) << (8 * (i % 4) + i / 4 * 4);
    }
    *reinterpret_cast<std::uint32_t*>(row.to + row.header + first / 16 * 8 + lane % 2 * 4) = word;
  }
  if (lane != 0) return;
  *reinterpret_cast<float*>(row.to) = any ? top * (1.0f / 1785.0f) : 0.0f;
  for (unsigned at = int4_multipliers_at + groups; at < row.header; ++at) row.to[at] = std::byte{};
}

}  // namespace mooncaf::cuda

/// grid: tokens. A thread writes two numbers, or a warp a row of integers.
MOONCAF_KERNEL(mooncaf_kv_write, mooncaf::cuda::kv_write_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  std::byte* block = p.blocks[block_x()];
  if (block == nullptr) return;
  block += p.kv.layer_offset + p.row_offsets[block_x()];
  const unsigned rows = (2 - p.kv.shared) * p.kv.kv_heads, dims = p.kv.head_dim, pairs = dims / 2;
  if (p.kv.keys == kv_form::int8) {
    for (unsigned i = thread_index() / warp_threads; i < rows; i += row_threads / warp_threads) {
      const kv_row row = row_of(p, block, i);
      if (row.form == kv_form::int4) write_int4(row, dims);
      else write_int8(row, dims);
    }
    return;
  }
  for (unsigned i = thread_index(); i < rows * pairs; i += row_threads) {
    const kv_row row = row_of(p, block, i / pairs);
    const unsigned pair = i % pairs;
    const float* from = row.from + 2 * pair;
    if (row.form == kv_form::f32) {
      auto* at = reinterpret_cast<float*>(row.to) + 2 * pair;
      at[0] = from[0];
      at[1] = from[1];
    } else {
      reinterpret_cast<std::uint32_t*>(row.to)[pair] = pack_half2(from[0], from[1]);
    }
  }
}

/// grid: rows
MOONCAF_KERNEL(mooncaf_swiglu, mooncaf::cuda::swiglu_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  const float* gate = p.gate + block_x() * p.gate_stride;
  const float* up = p.up + block_x() * p.up_stride;
  float* out = p.out + block_x() * p.out_stride;
  for (unsigned i = thread_index(); i < p.cols; i += row_threads) {
    if (p.limit != 0) {
      const float g = smaller(gate[i], p.limit), u = larger(smaller(up[i], p.limit), -p.limit);
      out[i] = g / (1 + exponential(-1.702f * g)) * (u + 1);
      continue;
    }
    const float g = gate[i];
    const float z = p.gelu != 0 ? g * fused(g * g, 0.07135481627f, 1.595769122f) : g;
    out[i] = g / (1 + exponential(-z)) * up[i];
  }
}

/// grid: rows
MOONCAF_KERNEL(mooncaf_add, mooncaf::cuda::add_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  for (unsigned i = thread_index(); i < p.cols; i += row_threads)
    p.x[block_x() * p.x_stride + i] += p.y[block_x() * p.y_stride + i];
}

/// grid: rows
MOONCAF_KERNEL(mooncaf_bend, mooncaf::cuda::bend_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  float* x = p.x + block_x() * p.stride;
  for (unsigned i = thread_index(); i < p.cols; i += row_threads)
    x[i] = p.cap != 0 ? capped(x[i], p.cap) : x[i] * p.factor;
}

/// grid: rows of `packed`
MOONCAF_KERNEL(mooncaf_move, mooncaf::cuda::move_params, mooncaf::cuda::row_threads) {
  using namespace mooncaf::cuda;
  float* sparse = p.sparse + p.rows[block_x()] * p.sparse_stride;
  float* packed = p.packed + block_x() * p.packed_stride;
  const float weight = p.weights != nullptr ? p.weights[block_x()] : 0;
  for (unsigned i = thread_index(); i < p.cols; i += row_threads) {
    if (p.weights == nullptr) packed[i] = sparse[i];
    else sparse[i] = fused(weight, packed[i], sparse[i]);
  }
}
