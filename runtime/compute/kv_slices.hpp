#pragma once
// A piece of a sequence's KV as the slices that bring it from some blocks here to the decode side's.

#include <cstdint>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/compute/kv_piece.hpp"
#include "runtime/request/messages.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

/// Where a sequence's blocks lie in a region of this node.
struct block_place {
  region_id region;
  const std::vector<std::uint64_t>& offsets;  ///< of each block
  page_strides strides;
};

/// First position of a piece that the decode side does not have yet.
std::uint32_t first_missing(const kv_piece& what, const kv_layout& layout, const kv_target& to);

/// Empty if the decode side has all of the piece.
/// @param layout  of the decode side's blocks, and of those at `from` but for the strides. Pages that are
/// laid out by
///                token have one layout on both sides.
std::vector<slice_pair> slices_of(const kv_piece& what, const kv_layout& layout, const block_place& from,
                                  const kv_target& to);

}  // namespace mooncaf
