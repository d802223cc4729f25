#pragma once
// Which regions of this node the initiator of a link was given.

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "transport/node_state.hpp"

namespace mooncaf {

/// @thread  any
class region_grants {
 public:
  /// Gives a region to an initiator that presents its key. `unregister_region` takes a region out of the
  /// table and then asks for grants: since both happen under one lock here, it misses none.
  /// @error as `region_table::resolve`; `ec::unsupported` if the region does not lie in shared memory.
  result<std::shared_ptr<local_region>> give(const region_table& regions, region_id id,
                                             std::uint64_t access_key) {
    std::lock_guard lock{mutex_};
    if (const auto allowed = regions.resolve({id, 0, 0}, access_key); !allowed) return fail(allowed.error());
    auto region = regions.find(id);
    if (!region || !region->fd)
      return fail(ec::unsupported, "region " + to_string(id) + " does not lie in shared memory");
    given_.insert(id);
    return region;
  }
  bool given(region_id id) const {
    std::lock_guard lock{mutex_};
    return given_.contains(id);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<region_id> given_;
};

}  // namespace mooncaf
