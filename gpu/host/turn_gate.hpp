#pragma once
// Turns of the queues that share a device.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

namespace mooncaf {

/// Turns by priority, then by order of arrival. @thread Safe; a turn is taken and given back by the same
/// thread.
class turn_gate {
 public:
  void enter(int priority) {
    std::unique_lock lock{mutex_};
    const auto me = std::make_pair(priority, next_++);
    if (!busy_ && waiting_.empty()) {
      busy_ = true;
      return;
    }
    waiting_.insert(me);
    changed_.wait(lock, [&] { return !busy_ && *waiting_.begin() == me; });
    waiting_.erase(me);
    busy_ = true;
  }

  void leave() {
    bool awaited;
    {
      const std::lock_guard lock{mutex_};
      busy_ = false;
      awaited = !waiting_.empty();
    }
    if (awaited) changed_.notify_all();
  }

  /// Threads that wait for their turn now.
  std::size_t waiting() const {
    const std::lock_guard lock{mutex_};
    return waiting_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<int, std::uint64_t>> waiting_;
  std::uint64_t next_ = 0;
  bool busy_ = false;
};

}  // namespace mooncaf
