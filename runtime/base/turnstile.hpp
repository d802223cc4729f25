#pragma once
// Passes go through a place one at a time, in the order in which they were promised it.

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace mooncaf {

/// @thread  Safe. A place that was taken is entered and left exactly once.
class turnstile {
 public:
  /// Takes the next place in the line.
  std::uint64_t place() {
    const std::lock_guard lock{mutex_};
    return taken_++;
  }
  /// Waits until all places before it were left.
  void enter(std::uint64_t place) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return left_ == place; });
  }
  void leave() {
    {
      const std::lock_guard lock{mutex_};
      ++left_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t taken_ = 0, left_ = 0;
};

}  // namespace mooncaf
