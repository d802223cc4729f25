#include "runtime/model/rank_exchange.hpp"

#include <cstring>

namespace mooncaf {

void rank_exchange::gather(tensor t) {
  const auto of = part().of;
  const auto columns = (t.cols + of - 1) / of;
  const auto most = columns == 0 ? 1 : std::max<std::size_t>(1, room() / columns);
  std::size_t begin = 0;
  do {
    const auto rows = rows_of(t, begin, std::min(most, t.rows - begin));
    parts_.clear();
    for (std::uint32_t r = 0; r < of; ++r) {
      const auto share = tensor_part{r, of}.share(t.cols);
      parts_.push_back(columns_of(rows, share.first, share.count));
    }
    swap(parts_);
    begin += rows.rows;
  } while (begin < t.rows);
}

void rank_exchange::gather_rows(tensor t, std::span<const part_range> of) {
  const auto most = std::max<std::size_t>(1, room() / t.cols);
  const auto longest = std::ranges::max_element(of, {}, &part_range::count)->count;
  for (std::size_t begin = 0; begin < longest; begin += most) {
    parts_.clear();
    for (const auto& rows : of) {
      const auto at = std::min(begin, rows.count);
      parts_.push_back(rows_of(t, rows.first + at, std::min(most, rows.count - at)));
    }
    swap(parts_);
  }
}

void rank_exchange::pack(tensor from, float* to) noexcept {
  for (std::size_t r = 0; r < from.rows; ++r)
    std::memcpy(to + r * from.cols, from.row(r), from.cols * sizeof(float));
}

void rank_exchange::unpack(const float* from, tensor to) noexcept {
  for (std::size_t r = 0; r < to.rows; ++r)
    std::memcpy(to.row(r), from + r * to.cols, to.cols * sizeof(float));
}

}  // namespace mooncaf
