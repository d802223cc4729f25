#pragma once
// The health of the device that the workers of a process share.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/base/error.hpp"

namespace mooncaf {

/// A device that failed for one of its workers has failed for all. @thread Safe.
class device_health {
 public:
  void failed(std::string why) {
    const std::lock_guard lock{mutex_};
    if (why_.empty()) why_ = std::move(why);
  }
  /// Why it computes nothing any more; empty: no worker has seen it fail.
  std::string failure() const {
    const std::lock_guard lock{mutex_};
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  std::string why_;
};

/// One worker's view of it. @thread  Owned by the worker; not synchronised.
class device_watch {
 public:
  /// @param told  is told once, when this worker computes nothing any more.
  device_watch(std::shared_ptr<device_health> health, std::function<void(const std::string& why)> told)
      : health_(std::move(health)), told_(std::move(told)) {}

  /// Looks whether the device has failed, for this worker or for another one.
  /// @param own   a failure of this worker's, which may be its alone.
  /// @param lost  called with the reason if it is new to this worker.
  template <class Lost>
  void look(const std::optional<device_failure>& own, Lost lost) {
    if (own && own->whole()) health_->failed(own->what());
    const auto why = own ? own->what() : health_->failure();
    if (why.empty() || !failure_.empty()) return;
    failure_ = why;
    lost(error{ec::unavailable, "device: " + why});
    told_(why);
  }
  /// Why this worker computes nothing any more; empty: it does.
  const std::string& failure() const noexcept { return failure_; }

 private:
  std::shared_ptr<device_health> health_;
  std::function<void(const std::string& why)> told_;
  std::string failure_;
};

}  // namespace mooncaf
