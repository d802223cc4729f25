#pragma once
// The time that bytes take from one memory to another.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace mooncaf {

struct link_speed {
  std::size_t bytes_per_s = 0;         ///< of either direction; 0: no limit
  std::chrono::nanoseconds latency{};  ///< from a submission's last byte on the link to its arrival
};

/// A link that works in both directions at once and serves each in order of arrival.
/// @thread  Safe.
class timed_link {
 public:
  enum class direction { to_device, to_host };

  explicit timed_link(const link_speed& speed) : speed_(speed) {}

  /// Blocks the caller until `bytes` that start now would have arrived.
  void cross(direction d, std::size_t bytes);

 private:
  using clock = std::chrono::steady_clock;

  const link_speed speed_;
  std::mutex mutex_;
  clock::time_point free_at_[2];
};

}  // namespace mooncaf
