#pragma once
// The news of which KV blocks a node holds.

#include <cstdint>
#include <vector>

#include "runtime/base/block_name.hpp"
#include "runtime/base/storage_tier.hpp"

namespace mooncaf {

/// The values travel between nodes.
enum class block_change : std::uint8_t {
  stored = 1,   ///< new in its tier, and in neither DRAM nor on SSD before
  moved = 2,    ///< was in another tier
  removed = 3,  ///< in no tier any more
};

/// One change of the blocks that a node can serve. Changes that leave `tier` as it was are no news.
struct block_event {
  block_name name;
  block_change what = block_change::stored;
  /// The first of DRAM, SSD and the device that holds the block after the change; of a block that was removed
  /// the one that held it last.
  storage_tier tier = storage_tier::dram;
  /// Without gaps, from 1; a gap means that events were dropped: ask for a snapshot. It does not travel: a
  /// batch numbers its first event.
  std::uint64_t sequence = 0;
};

/// Everything held at one moment, parents before their children.
struct block_snapshot {
  std::uint64_t sequence = 0;  ///< the last event that the snapshot includes
  std::vector<block_event> blocks;
};

}  // namespace mooncaf
