#include "gpu/linked/timed_link.hpp"

#include <algorithm>
#include <thread>

namespace mooncaf {

void timed_link::cross(direction d, std::size_t bytes) {
  if (speed_.bytes_per_s == 0 && speed_.latency.count() == 0) return;
  const auto on_link = std::chrono::nanoseconds{
      speed_.bytes_per_s == 0 ? 0
                              : static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) /
                                                          static_cast<double>(speed_.bytes_per_s))};
  clock::time_point arrival;
  {
    const std::lock_guard lock{mutex_};
    auto& free_at = free_at_[static_cast<std::size_t>(d)];
    free_at = std::max(free_at, clock::now()) + on_link;
    arrival = free_at + speed_.latency;
  }
  std::this_thread::sleep_until(arrival);
}

void copy_engines::begin(timed_link::direction d) {
  std::unique_lock lock{mutex_};
  freed_.wait(lock, [&] { return free_[kind(d)] > 0; });
  --free_[kind(d)];
}

void copy_engines::end(timed_link::direction d) {
  {
    const std::lock_guard lock{mutex_};
    ++free_[kind(d)];
  }
  freed_.notify_all();
}

}  // namespace mooncaf
