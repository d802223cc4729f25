#pragma once
// What the workers of a process know of the device that they share.

#include <mutex>
#include <string>
#include <utility>

namespace mooncaf {

/// A device that failed for one of its workers has failed for all. @thread Safe.
class device_health {
 public:
  void failed(std::string why) {
    const std::lock_guard lock{mutex_};
    if (why_.empty()) why_ = std::move(why);
  }
  /// Why it computes nothing any more; empty: as far as anybody knows, it does.
  std::string failure() const {
    const std::lock_guard lock{mutex_};
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  std::string why_;
};

}  // namespace mooncaf
