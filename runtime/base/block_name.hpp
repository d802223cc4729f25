#pragma once
// What KV blocks are called.

#include <cstdint>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// What a block is called and where it stands in its prompt.
struct block_name {
  block_key key;
  block_key parent;         ///< key of the block before it; for depth 0 its own, or what else is no block
  std::uint32_t depth = 0;  ///< index of the block in its prompt

  friend bool operator==(const block_name&, const block_name&) noexcept = default;
};

}  // namespace mooncaf
