#pragma once
// What part of the service a tenant has where requests wait.

#include <cstdint>

namespace mooncaf {

/// Whose part of the service a request takes where requests wait, and how large that part is.
struct service_share {
  std::uint64_t owner = 0;   ///< a tenant, as a hash; 0: all requests without one, together
  std::uint32_t weight = 1;  ///< against others that wait; at least 1

  friend bool operator==(const service_share&, const service_share&) = default;
};

}  // namespace mooncaf
