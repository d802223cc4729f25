#pragma once
// The names of KV blocks.

#include <cstdint>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// A block's key and its place in its prompt.
struct block_name {
  block_key key;
  block_key parent;  ///< key of the block before it; for depth 0 its own, or another that is no block's
  std::uint32_t depth = 0;  ///< index of the block in its prompt

  friend bool operator==(const block_name&, const block_name&) noexcept = default;
};

}  // namespace mooncaf
