#pragma once
// Until when a directory may serve.

#include <atomic>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// A right that was seen to have ended stays so: the directory has closed its connections then, and would take the holders
/// that come back for others that died. A directory that begins anew hears what they hold.
/// @thread  any
class serving_right {
 public:
  explicit serving_right(time_point until) : until_(until) {}

  bool lasts(time_point now) noexcept {
    auto until = until_.load(std::memory_order_relaxed);
    while (now >= until)
      if (until == ended || until_.compare_exchange_weak(until, ended, std::memory_order_relaxed))
        return false;
    return true;
  }
  /// Does nothing once it was seen to have ended.
  void extend(time_point to) noexcept {
    auto until = until_.load(std::memory_order_relaxed);
    while (until != ended && !until_.compare_exchange_weak(until, to, std::memory_order_relaxed)) {
    }
  }

 private:
  static constexpr time_point ended = time_point::min();
  std::atomic<time_point> until_;
};

}  // namespace mooncaf
