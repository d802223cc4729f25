#pragma once
// Orders to the shard that all who claim blocks have in common: prefill, decode and pool keepers.

#include <cstdint>
#include <vector>

#include "runtime/request/block_claim.hpp"

namespace mooncaf::claim_action {

/// Ask the shard; tell `pinned`, or that it failed.
struct pin {
  std::uint64_t owner = 0;
  pin_order what;
};
/// Ask the shard; tell `reserved` or `refused`.
struct reserve {
  std::uint64_t owner = 0;
  std::uint32_t count = 0;
};
struct commit {
  std::uint64_t owner = 0;
  std::vector<commit_item> items;
};
/// Tell the shard that the owner is done.
struct release {
  std::uint64_t owner = 0;
};

}  // namespace mooncaf::claim_action
