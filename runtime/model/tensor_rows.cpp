#include "runtime/model/tensor_rows.hpp"

#include <cstring>
#include <span>
#include <vector>

#include "gpu/host/dequantize.hpp"

namespace mooncaf {

source_tensor rows_of(const source_tensor& t, std::size_t first, std::size_t count) noexcept {
  auto out = t;
  const auto row = row_bytes(t.type, t.cols);
  out.rows = count;
  out.data = t.data.subspan(first * row, count * row);
  return out;
}

source_tensor made_tensor(ggml_type type, std::size_t rows, std::size_t cols, std::byte*& bytes) {
  const auto size = rows * row_bytes(type, cols);
  const std::shared_ptr<std::byte[]> memory(new std::byte[size]);
  bytes = memory.get();
  return {type, rows, cols, {bytes, size}, 0, memory};
}

source_tensor as_f32(const source_tensor& t) {
  if (t.type == ggml_type::f32) return t;
  std::byte* to = nullptr;
  auto out = made_tensor(ggml_type::f32, t.rows, t.cols, to);
  std::vector<float> row(t.cols);
  for (std::size_t r = 0; r < t.rows; ++r) {
    dequantize_row(t.type, rows_of(t, r, 1).data, row);
    std::memcpy(to + r * t.cols * sizeof(float), row.data(), t.cols * sizeof(float));
  }
  return out;
}

source_tensor turned_rows(const source_tensor& t, std::size_t first, std::size_t count) {
  const bool plain = block_elements(t.type) == 1;
  std::byte* to = nullptr;
  auto out = made_tensor(plain ? t.type : ggml_type::f32, t.cols, count, to);
  const auto size = block_bytes(out.type);
  std::vector<float> expanded(plain ? 0 : t.cols);
  for (std::size_t r = 0; r < count; ++r) {
    const auto row = rows_of(t, first + r, 1).data;
    if (!plain) dequantize_row(t.type, row, expanded);
    const auto* from = plain ? row.data() : reinterpret_cast<const std::byte*>(expanded.data());
    for (std::size_t c = 0; c < t.cols; ++c) std::memcpy(to + (c * count + r) * size, from + c * size, size);
  }
  return out;
}

}  // namespace mooncaf
