#pragma once
// The exception of a device that cannot go on.

#include <stdexcept>
#include <string>

namespace mooncaf {

/// Out of memory amid a pass, a fault of a kernel, an error of the memory, a card that is no longer there.
/// Nothing that the worker has on the device can be trusted: it ends, with this reason, and its requests go
/// elsewhere.
class device_failure : public std::runtime_error {
 public:
  /// @param whole  no one else can compute on the device, either
  explicit device_failure(const std::string& why, bool whole = true)
      : std::runtime_error(why), whole_(whole) {}
  bool whole() const noexcept { return whole_; }

 private:
  bool whole_;
};

}  // namespace mooncaf
