#pragma once
// The blocks that an engine without news should hold: of the prompts and answers that it computed last.

#include <cstddef>
#include <list>
#include <span>
#include <unordered_map>

#include "runtime/engines/held_blocks.hpp"

namespace mooncaf {

/// @thread  Owned by the engine's worker; not synchronised.
class assumed_blocks {
 public:
  /// @param most  that the engine's memory has room for.
  explicit assumed_blocks(std::size_t most) : most_(most) {}

  /// The engine has computed or read these, the first ones of a prompt. The oldest beyond the room are let go, the end of a
  /// prompt before its beginning.
  /// @param root  parent of the first.
  void used(std::span<const block_key> keys, const block_key& root, held_blocks& held);
  /// The engine began anew.
  void forget(held_blocks& held);

 private:
  std::size_t most_;
  std::list<block_key> by_age_;  ///< oldest first
  std::unordered_map<block_key, std::list<block_key>::iterator> at_;
};

}  // namespace mooncaf
