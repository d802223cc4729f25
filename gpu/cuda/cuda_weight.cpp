#include "gpu/cuda/cuda_weight.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "gpu/host/dequantize.hpp"
#include "gpu/host/packed_matrix.hpp"
#include "gpu/host/thread_pool.hpp"

namespace mooncaf::cuda {

namespace {

/// Rows are packed into two pieces of the host's memory, each of so many bytes.
constexpr std::size_t piece_bytes = std::size_t{16} << 20;

/// A form and the sizes that follow from it.
struct form_shape {
  weight_form form;
  unsigned bits;         ///< of a weight
  unsigned group;        ///< columns under one scale; 0: none
  unsigned scale_bytes;  ///< of a scale and a minimum together, or of an exponent
};

form_shape shape_of(ggml_type type) {
  switch (type) {
    case ggml_type::q4_0:
    case ggml_type::q4_1:
      return {weight_form::nibbles, 4, 32, 4};
    case ggml_type::q4_k:
      return {weight_form::nibbles, 4, 32, 8};
    case ggml_type::q8_0:
      return {weight_form::bytes, 8, 32, 4};
    case ggml_type::mxfp4:
      return {weight_form::fp4, 4, 32, 1};
    case ggml_type::q5_k:
      return {weight_form::fives, 5, 32, 8};
    case ggml_type::q6_k:
      return {weight_form::bytes_by_sixteen, 8, 16, 8};
    case ggml_type::f16:
      return {weight_form::f16, 16, 0, 0};
    case ggml_type::bf16:
      return {weight_form::bf16, 16, 0, 0};
    case ggml_type::f32:
      break;
  }
  return {weight_form::f32, 32, 0, 0};
}

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

/// 5 bits: the lowest four of a chunk as nibbles, and behind them the highest, column j's as bit j.
void put_fives(const group_values& v, std::byte* row, std::size_t first) {
  for (unsigned c = 0; c < 32; ++c) {
    const auto column = (first + c) % 64;
    auto* const chunk = row + (first + c) / 64 * 40;
    if (column % 16 < 8)
      chunk[column / 16 * 8 + column % 8] =
          static_cast<std::byte>((v.quants[c] & 15u) | (v.quants[c + 8] & 15u) << 4);
    chunk[32 + column / 8] |= static_cast<std::byte>((v.quants[c] >> 4 & 1u) << column % 8);
  }
}

/// A group's weights to where they lie in a row. Nibbles: of each 16 columns, column j and j + 8 share a
/// byte.
void put_quants(const group_values& v, const form_shape& s, std::byte* row, std::size_t first) {
  if (s.bits == 5) return put_fives(v, row, first);
  for (unsigned c = 0; c < s.group; ++c) {
    const auto column = first + c;
    if (s.bits == 8) {
      row[column] = static_cast<std::byte>(v.quants[c]);
    } else if (column % 16 < 8) {
      row[column / 16 * 8 + column % 8] = static_cast<std::byte>(v.quants[c] | v.quants[c + 8] << 4);
    }
  }
}

/// MXFP4's groups are an exponent, and bytes that columns j and j + 16 share.
void put_fp4(const std::byte* group, std::byte* row, std::size_t first, std::byte* exponent) {
  *exponent = group[0];
  const auto number = [&](unsigned c) {
    const auto both = static_cast<unsigned>(group[1 + c % 16]);
    return c < 16 ? both & 15u : both >> 4;
  };
  for (unsigned c = 0; c < 32; ++c)
    if (c % 16 < 8)
      row[(first + c) / 16 * 8 + c % 8] = static_cast<std::byte>(number(c) | number(c + 8) << 4);
}

void put_scales(const group_values& v, const form_shape& s, std::byte* at) {
  if (s.scale_bytes == 8) {
    const float pair[2] = {v.scale, v.minimum};
    std::memcpy(at, pair, sizeof pair);
  } else {
    const std::uint16_t pair[2] = {float_to_half(v.scale), float_to_half(v.minimum)};
    std::memcpy(at, pair, sizeof pair);
  }
}

/// A row of the file's, to values and scales that begin as zeros.
void pack_row(ggml_type type, const form_shape& s, std::size_t cols, const std::byte* from, std::byte* values,
              std::byte* scales) {
  if (s.group == 0) {
    std::memcpy(values, from, row_bytes(type, cols));
    return;
  }
  for (std::size_t g = 0; g < cols / s.group; ++g) {
    if (s.form == weight_form::fp4) {
      put_fp4(from + g * block_bytes(type), values, g * s.group, scales + g);
      continue;
    }
    const auto v = read_group(type, reinterpret_cast<const std::uint8_t*>(from), g);
    put_quants(v, s, values, g * s.group);
    put_scales(v, s, scales + g * s.scale_bytes);
  }
}

}  // namespace

weight_loader::weight_loader(accelerator& gpu, thread_pool& pool)
    : gpu_(gpu), pool_(pool), stream_(gpu.make_stream(1)) {}

weight_loader::~weight_loader() { rest(); }

void weight_loader::rest() {
  for (auto& p : pieces_) {
    if (p.pinned) gpu_.unpin(p.memory.get());
    p = {};
  }
}

std::byte* weight_loader::take(std::size_t bytes) {
  at_ ^= 1u;
  auto& p = pieces_[at_];
  wait_for(std::exchange(p.fetched, nullptr));
  if (p.bytes < bytes) {
    if (p.pinned) gpu_.unpin(p.memory.get());
    p.bytes = std::max(bytes, piece_bytes);
    p.memory = std::make_unique_for_overwrite<std::byte[]>(p.bytes);
    p.pinned = gpu_.pin({p.memory.get(), p.bytes}).has_value();
  }
  return p.memory.get();
}

/// Packs as many rows as fit a piece, and goes on with the other piece while the device fetches them: neither
/// waits for the whole matrix.
result<std::unique_ptr<weight>> weight_loader::load(ggml_type type, std::size_t rows, std::size_t cols,
                                                    std::span<const std::byte> data) {
  if (auto fits = check_matrix(type, rows, cols, data); !fits) return fail(fits.error());
  if (rows > std::numeric_limits<std::uint32_t>::max() - row_padding ||
      cols > std::numeric_limits<std::uint32_t>::max() - chunk_columns)
    return fail(ec::unsupported,
                std::to_string(rows) + " rows of " + std::to_string(cols) + " are beyond 32 bits");
  const auto s = shape_of(type);
  const auto padded = round_up(rows, row_padding), chunks = (cols + chunk_columns - 1) / chunk_columns;
  const auto value_stride = chunks * chunk_columns * s.bits / 8;
  const auto scale_stride = s.group == 0 ? 0 : chunks * chunk_columns / s.group * s.scale_bytes;
  const auto stride = value_stride + scale_stride, source_stride = row_bytes(type, cols);
  auto memory = device_memory::make(gpu_, padded * stride);
  if (!memory) return fail(memory.error());
  std::byte* const scales = memory->at() + padded * value_stride;
  const auto most = std::clamp<std::size_t>(piece_bytes / stride, 1, padded);
  for (std::size_t first = 0; first < padded; first += most) {
    const auto count = std::min(most, padded - first);
    auto* const values = take(count * stride);
    auto* const own_scales = values + count * value_stride;
    pool_.run(count, [&](std::size_t r) {
      std::memset(values + r * value_stride, 0, value_stride);
      std::memset(own_scales + r * scale_stride, 0, scale_stride);
      if (first + r < rows)
        pack_row(type, s, cols, data.data() + (first + r) * source_stride, values + r * value_stride,
                 own_scales + r * scale_stride);
    });
    stream_->upload(memory->at() + first * value_stride, values, count * value_stride);
    if (scale_stride != 0) stream_->upload(scales + first * scale_stride, own_scales, count * scale_stride);
    pieces_[at_].fetched = stream_->record();
  }
  stream_->synchronize();
  weight_view view;
  view.values = memory->at();
  view.scales = s.group == 0 ? nullptr : scales;
  view.form = s.form;
  view.wide_scales = s.scale_bytes == 8 ? 1 : 0;
  view.rows = static_cast<std::uint32_t>(rows);
  view.chunks = static_cast<std::uint32_t>(chunks);
  return std::make_unique<cuda_weight>(std::move(*memory), view, cols);
}

}  // namespace mooncaf::cuda
