#pragma once
// What a device throws that cannot go on.

#include <stdexcept>

namespace mooncaf {

/// Out of memory amid a pass, a fault of a kernel, an error of the memory, a card that is no longer there.
/// Nothing that the device holds can be trusted: the process that computes with it ends, with this reason,
/// and its requests go elsewhere.
class device_failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mooncaf
