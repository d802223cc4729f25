#pragma once
// Which roles have room.

namespace mooncaf {

/// Whether a request that is placed now would start soon at each role.
struct cluster_room {
  bool prefill = true;  ///< some instance has little in store
  bool decode = true;   ///< some instance has fewer requests than its batch and as many to come
  bool both() const noexcept { return prefill && decode; }
};

}  // namespace mooncaf
