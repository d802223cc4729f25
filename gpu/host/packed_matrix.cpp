#include "gpu/host/packed_matrix.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/host/dequantize.hpp"
#include "gpu/host/thread_pool.hpp"
#include "gpu/host/weight_arena.hpp"

namespace mooncaf {

namespace {

using u8 = std::uint8_t;

void k_scale_min(const u8* s, int j, int& scale, int& min) {
  scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
  min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
}

void put_scale(std::byte* at, float value, unsigned size) {
  if (size == 4) {
    std::memcpy(at, &value, 4);
  } else {
    const auto half = float_to_half(value);
    std::memcpy(at, &half, 2);
  }
}

void pack_tile(const packed_matrix& m, ggml_type type, std::span<const std::byte> data, std::size_t tile) {
  const auto stride = row_bytes(type, m.cols);
  auto* out = m.data.get() + tile * m.tile_bytes();
  for (std::size_t g = 0; g < m.groups(); ++g, out += m.group_bytes()) {
    auto* quants = reinterpret_cast<u8*>(out + 2 * packed_matrix::tile_rows * m.scale_size);
    std::memset(out, 0, m.group_bytes());
    for (std::size_t r = 0; r < packed_matrix::tile_rows; ++r) {
      const auto row = tile * packed_matrix::tile_rows + r;
      if (row >= m.rows) break;
      const auto v = read_group(type, reinterpret_cast<const u8*>(data.data()) + row * stride, g);
      put_scale(out + r * m.scale_size, v.scale, m.scale_size);
      put_scale(out + (packed_matrix::tile_rows + r) * m.scale_size, v.minimum, m.scale_size);
      for (unsigned c = 0; c < m.group; ++c) {
        const auto half = m.group / 2;
        if (m.bits == 8) {
          quants[c / 4 * 64 + r * 4 + c % 4] = v.quants[c];
        } else if (c < half) {
          quants[c / 4 * 64 + r * 4 + c % 4] = static_cast<u8>(v.quants[c] | v.quants[c + half] << 4);
        }
      }
    }
  }
}

}  // namespace

// Brings every packed type to one form, unsigned whole numbers with a scale and a minimum, so that a kernel
// need know only their width.
group_values read_group(ggml_type type, const u8* row, std::size_t g) {
  group_values v;
  switch (type) {
    case ggml_type::q4_0:
    case ggml_type::q4_1: {
      const u8* b = row + g * block_bytes(type);
      v.scale = half_at(b);
      v.minimum = type == ggml_type::q4_0 ? -8 * v.scale : half_at(b + 2);
      const u8* q = b + (type == ggml_type::q4_0 ? 2 : 4);
      for (int i = 0; i < 16; ++i) {
        v.quants[i] = q[i] & 15;
        v.quants[i + 16] = q[i] >> 4;
      }
      break;
    }
    case ggml_type::q8_0: {
      const u8* b = row + g * block_bytes(type);
      v.scale = half_at(b);
      v.minimum = -128 * v.scale;
      for (int i = 0; i < 32; ++i) v.quants[i] = static_cast<u8>(b[2 + i] ^ 0x80);
      break;
    }
    case ggml_type::mxfp4: {
      // Doubled numbers are whole, from -12 to 12.
      const u8* b = row + g * block_bytes(type);
      v.scale = mxfp4_half_scale(*b);
      v.minimum = -12 * v.scale;
      for (int i = 0; i < 16; ++i) {
        v.quants[i] = static_cast<u8>(12 + mxfp4_doubled[b[1 + i] & 15]);
        v.quants[i + 16] = static_cast<u8>(12 + mxfp4_doubled[b[1 + i] >> 4]);
      }
      break;
    }
    case ggml_type::q4_k:
    case ggml_type::q5_k: {
      const u8* b = row + g / 8 * block_bytes(type);
      const int j = static_cast<int>(g % 8);
      int scale, min;
      k_scale_min(b + 4, j, scale, min);
      v.scale = half_at(b) * static_cast<float>(scale);
      v.minimum = -half_at(b + 2) * static_cast<float>(min);
      const bool five = type == ggml_type::q5_k;
      const u8* q = b + (five ? 48 : 16) + 32 * (j / 2);
      for (int i = 0; i < 32; ++i) {
        const int low = j % 2 == 0 ? q[i] & 15 : q[i] >> 4;
        v.quants[i] = static_cast<u8>(low | (five ? (b[16 + i] >> j & 1) << 4 : 0));
      }
      break;
    }
    case ggml_type::q6_k: {
      const u8* b = row + g / 16 * block_bytes(type);
      const auto s = static_cast<int>(g % 16);
      v.scale = half_at(b + 208) * static_cast<float>(static_cast<std::int8_t>(b[192 + s]));
      v.minimum = -32 * v.scale;
      const int half = s / 8, quarter = s % 8 / 2, first = s % 2 * 16;
      for (int i = 0; i < 16; ++i) {
        const u8 low = b[64 * half + (quarter % 2) * 32 + first + i];
        const u8 high = b[128 + 32 * half + first + i];
        v.quants[i] = static_cast<u8>((quarter < 2 ? low & 15 : low >> 4) | (high >> 2 * quarter & 3) << 4);
      }
      break;
    }
    default:
      break;
  }
  return v;
}

result<void> check_matrix(ggml_type type, std::size_t rows, std::size_t cols,
                          std::span<const std::byte> data) {
  if (block_elements(type) == 0) {
    return fail(ec::unsupported, "tensor type number " + std::to_string(static_cast<std::uint32_t>(type)));
  }
  const auto stride = row_bytes(type, cols);
  if (rows == 0 || stride == 0) {
    return fail(ec::invalid_argument, std::to_string(rows) + " rows of " + std::to_string(cols) +
                                          " elements of type " + std::string{to_string(type)} +
                                          ", which come in blocks of " +
                                          std::to_string(block_elements(type)));
  }
  if (data.size() / stride != rows || data.size() % stride != 0) {
    return fail(ec::invalid_argument, std::to_string(rows) + " rows of " + std::to_string(stride) +
                                          " bytes, but " + std::to_string(data.size()) + " bytes of data");
  }
  return {};
}

bool can_pack(ggml_type type) noexcept {
  return type != ggml_type::f32 && type != ggml_type::f16 && type != ggml_type::bf16;
}

result<packed_matrix> pack(ggml_type type, std::size_t rows, std::size_t cols,
                           std::span<const std::byte> data, thread_pool& pool, weight_arena& memory) {
  packed_matrix m;
  m.rows = rows;
  m.cols = cols;
  m.bits = type == ggml_type::q4_0 || type == ggml_type::q4_1 || type == ggml_type::q4_k ? 4 : 8;
  m.group = type == ggml_type::q6_k ? 16 : 32;
  const bool halves = type == ggml_type::q4_0 || type == ggml_type::q4_1 || type == ggml_type::q8_0;
  m.scale_size = halves ? 2 : 4;
  auto taken = memory.take(m.size_bytes());
  if (!taken) return fail(taken.error());
  m.data = std::move(*taken);
  pool.run(m.tiles(), [&](std::size_t tile) { pack_tile(m, type, data, tile); });
  return m;
}

}  // namespace mooncaf
