#include "runtime/model/rank_columns.hpp"

namespace mooncaf {

tensor rank_columns::own(tensor t) const noexcept {
  const auto columns = part_.share(t.cols);
  return columns_of(t, columns.first, columns.count);
}

void rank_columns::gather(tensor t) {
  if (!all_) return;
  swap(t, own(t), [&](tensor seen) { all_->gather(seen); });
}

void rank_columns::gather_rows(tensor t, std::span<const part_range> of) {
  const auto mine = of[part_.rank];
  swap(t, rows_of(t, mine.first, mine.count), [&](tensor seen) { all_->gather_rows(seen, of); });
}

/// Calls `how` with rows that the host reaches: `t` itself, or a copy that has this rank's part of them, and goes back
/// to the device whole.
template <class How>
void rank_columns::swap(tensor t, tensor mine, const How& how) {
  if (!swapped_) {
    queue_.synchronize();
    return how(t);
  }
  const auto copy = std::span{*swapped_}.first(t.rows * t.cols);
  constexpr std::size_t few_rows = 16;  // of more, one copy of all is sooner there than as many copies
  const auto fetch = [&](tensor some) {
    if (some.rows == 0) return;
    const auto at = static_cast<std::size_t>(some.data - t.data);
    queue_.download(some.data, copy.subspan(at, some.rows * some.cols));
  };
  if (mine.cols == t.cols) fetch(mine);
  else if (t.rows > few_rows) fetch(t);
  else
    for (std::size_t r = 0; r < t.rows; ++r) fetch(rows_of(mine, r, 1));
  queue_.synchronize();
  how({copy.data(), t.rows, t.cols, t.cols});
  queue_.upload(copy, t.data);
}

}  // namespace mooncaf
