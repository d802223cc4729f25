#pragma once
// Within which bounds an autoscaler may choose the number of instances.

#include <cstdint>

namespace mooncaf {

struct instance_range {
  std::uint32_t least = 0, most = 0;  ///< most 0: as many as there are, always

  bool scales() const noexcept { return most > 0; }
  friend bool operator==(const instance_range&, const instance_range&) = default;
};

}  // namespace mooncaf
