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

owned_tensor turned_rows(const source_tensor& t, std::size_t first, std::size_t count) {
  const bool plain = block_elements(t.type) == 1;
  const auto size = plain ? block_bytes(t.type) : sizeof(float);
  owned_tensor out{{plain ? t.type : ggml_type::f32, t.cols, count, {}, 0},
                   std::make_unique<std::byte[]>(t.cols * count * size)};
  out.tensor.data = {out.bytes.get(), t.cols * count * size};
  std::vector<float> expanded(plain ? 0 : t.cols);
  for (std::size_t r = 0; r < count; ++r) {
    const auto row = rows_of(t, first + r, 1).data;
    if (!plain) dequantize_row(t.type, row, expanded);
    const auto* from = plain ? row.data() : reinterpret_cast<const std::byte*>(expanded.data());
    for (std::size_t c = 0; c < t.cols; ++c)
      std::memcpy(out.bytes.get() + (c * count + r) * size, from + c * size, size);
  }
  return out;
}

}  // namespace mooncaf
