#include "runtime/compute/kv_slices.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

/// Rows of one block.
struct rows_of_block {
  std::uint32_t block;
  std::uint32_t first;
  std::uint32_t count;
};

/// One layer: in one slice if the block is whole, as its planes lie side by side, else in a slice for each
/// plane.
void add_rows(std::vector<slice_pair>& out, const kv_layout& layout, const block_place& from,
              const kv_target& to, std::uint32_t layer, const rows_of_block& rows) {
  const auto local = from.offsets[rows.block];
  const auto remote = to.offsets[rows.block - to.have_blocks];
  const auto page = layout.page();
  const auto add = [&](std::size_t plane, std::uint32_t row, std::uint64_t length) {
    out.push_back({{from.region, local + from.strides.offset(layer, plane, row), length},
                   {to.region, remote + page.offset(layer, plane, row), length},
                   std::nullopt});
  };
  if (rows.count == layout.block_tokens) return add(0, 0, layout.layer_bytes());
  for (std::size_t plane = 0; plane < layout.planes(); ++plane)
    add(plane, rows.first, rows.count * layout.row_bytes());
}

/// Layers that lie side by side in a token's page: of all layers a run of tokens is one slice.
void add_tokens(std::vector<slice_pair>& out, const kv_layout& layout, const block_place& from,
                const kv_target& to, const kv_piece& what, const rows_of_block& rows) {
  const auto page = layout.page();
  const auto local = from.offsets[rows.block], remote = to.offsets[rows.block - to.have_blocks];
  const bool all = what.layers == layout.n_layers;
  const auto length = what.layers * page.layer;
  for (std::uint32_t row = 0; row < (all ? 1 : rows.count); ++row) {
    const auto at = page.offset(what.layer, 0, rows.first + row), bytes = all ? rows.count * length : length;
    out.push_back({{from.region, local + at, bytes}, {to.region, remote + at, bytes}, std::nullopt});
  }
}

}  // namespace

std::uint32_t first_missing(const kv_piece& what, const kv_layout& layout, const kv_target& to) {
  return std::max(what.first, to.have_blocks * layout.block_tokens);
}

std::vector<slice_pair> slices_of(const kv_piece& what, const kv_layout& layout, const block_place& from,
                                  const kv_target& to) {
  std::vector<slice_pair> out;
  for (auto at = first_missing(what, layout, to); at < what.last;) {
    const auto row = at % layout.block_tokens;
    const rows_of_block rows{at / layout.block_tokens, row,
                             std::min(layout.block_tokens - row, what.last - at)};
    if (layout.pages == page_order::page_first) {
      add_tokens(out, layout, from, to, what, rows);
    } else {
      for (std::uint32_t layer = 0; layer < what.layers; ++layer)
        add_rows(out, layout, from, to, what.layer + layer, rows);
    }
    at += rows.count;
  }
  return out;
}

}  // namespace mooncaf
