#pragma once
// The part of a request's KV that a transfer carries, as its tag says it.

#include <cstdint>

#include "runtime/base/ids.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

/// Positions [first, last) of `layers` layers that follow each other; fewer than 2^16 of them.
struct kv_piece {
  std::uint32_t layer = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::uint32_t layers = 1;

  friend bool operator==(const kv_piece&, const kv_piece&) = default;
};

inline transfer_tag tag_of(std::uint64_t owner, const kv_piece& what) {
  return {request_id{owner}, what.first, what.layer | what.layers << 16, what.last};
}
inline kv_piece piece_of(const transfer_tag& tag) {
  return {tag.layer & 0xFFFFu, tag.chunk, tag.kind, tag.layer >> 16};
}

}  // namespace mooncaf
