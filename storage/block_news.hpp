#pragma once
// What blocks are called, where on a node they may lie, and the news of what a node can serve.

#include <cstdint>
#include <vector>

#include "runtime/base/hash.hpp"

namespace mooncaf {

/// Where on a node a block may lie: the device's own memory (L1), the node's (L2), its SSD (L3).
enum class storage_tier : std::uint8_t { device, dram, ssd };

/// What a block is called and where it stands in its prompt.
struct block_name {
  block_key key;
  block_key parent;         ///< key of the block before it; for depth 0 its own, or what else is no block
  std::uint32_t depth = 0;  ///< index of the block in its prompt

  friend bool operator==(const block_name&, const block_name&) noexcept = default;
};

/// One change of what a node can serve. `tier` is the first of DRAM, SSD and the device that holds the block
/// after the change, for `removed` the one that held it last. Changes that leave it as it was are no news.
struct block_event {
  enum class kind : std::uint8_t {
    stored,   ///< new in `tier`, and in neither DRAM nor on SSD before
    moved,    ///< was in another tier, is now in `tier`
    removed,  ///< in no tier any more
  };
  /// Without gaps, from 1; a gap means that events were dropped: ask for a snapshot.
  std::uint64_t sequence = 0;
  kind what = kind::stored;
  storage_tier tier = storage_tier::dram;
  block_name name;
};

/// Everything held at one moment, parents before their children.
struct block_snapshot {
  std::uint64_t sequence = 0;  ///< the last event that the snapshot includes
  std::vector<block_event> blocks;
};

}  // namespace mooncaf
