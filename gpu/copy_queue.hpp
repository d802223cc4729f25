#pragma once
// Copies between a device's memory and the host's, and the events that order them with computing.

#include <cstddef>
#include <memory>
#include <span>

namespace mooncaf {

/// A place in a device's memory, such as a KV block. Only the device's queues follow it, unless
/// `device_info::host_memory`. A type of its own, so that no host address is taken for one by mistake.
struct device_bytes {
  std::byte* at = nullptr;

  device_bytes operator+(std::size_t offset) const noexcept { return {at + offset}; }
};

/// A point in a queue's work. @thread Safe.
class event {
 public:
  virtual ~event() = default;
  /// Blocks the caller until all that the queue had been given before is done, and can be seen.
  virtual void wait() = 0;
  virtual bool reached() const = 0;
};
/// Null is a point that was reached: queues that compute at once return it.
using event_ptr = std::shared_ptr<event>;

inline void wait_for(const event_ptr& e) {
  if (e) e->wait();
}
inline bool is_reached(const event_ptr& e) { return !e || e->reached(); }

/// `count` pieces of `piece_bytes`, `pitch_bytes` apart on the device, and as far on the host unless
/// `host_pitch_bytes` says otherwise: whole layers of KV blocks as one piece, some tokens' rows of all heads
/// as many; rows that lie apart in a page (`kv_layout::page`) likewise.
struct kv_copy {
  device_bytes device;
  std::byte* host = nullptr;
  std::size_t piece_bytes = 0;
  std::size_t pitch_bytes = 0;
  std::size_t count = 1;
  std::size_t host_pitch_bytes = 0;  ///< 0: `pitch_bytes`

  std::size_t host_pitch() const noexcept { return host_pitch_bytes != 0 ? host_pitch_bytes : pitch_bytes; }
  /// From the first to the last byte on the host.
  std::size_t host_reach() const noexcept {
    return count == 0 ? 0 : (count - 1) * host_pitch() + piece_bytes;
  }
  std::size_t bytes() const noexcept { return piece_bytes * count; }
};

/// Ordered copies between host and device. Calls may return before completion, and the memory of the copies
/// must live until then; the list itself is read at once. One thread at a time.
class copy_queue {
 public:
  virtual ~copy_queue() = default;
  virtual void load(std::span<const kv_copy> copies) = 0;   ///< host to device
  virtual void store(std::span<const kv_copy> copies) = 0;  ///< device to host
  /// Later copies of this queue begin after `e`.
  virtual void wait(const event_ptr& e) = 0;
  /// Reached once everything that was handed over is done.
  virtual event_ptr record() = 0;
};

}  // namespace mooncaf
