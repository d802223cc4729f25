#pragma once
// The time that bytes take from one memory to another.

#include <algorithm>
#include <chrono>
#include <condition_variable>
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

/// How many copies are under way at once. Of several engines each serves one direction, so that a long load
/// holds up no store; a single one serves both. @thread Safe.
class copy_engines {
 public:
  /// @param count  >= 1
  explicit copy_engines(unsigned count)
      : shared_(count == 1), free_{std::max(1u, (count + 1) / 2), std::max(1u, count / 2)} {}

  /// Waits for an engine.
  void begin(timed_link::direction d);
  void end(timed_link::direction d);

 private:
  std::size_t kind(timed_link::direction d) const noexcept {
    return shared_ ? 0 : static_cast<std::size_t>(d);
  }

  const bool shared_;
  std::mutex mutex_;
  std::condition_variable freed_;
  unsigned free_[2];  ///< of each kind
};

}  // namespace mooncaf
