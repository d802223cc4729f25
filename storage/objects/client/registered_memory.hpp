#pragma once
// The buffers that callers of a store have registered: where a call may write because of them, and what NICs know.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>

namespace mooncaf {

inline std::uint64_t begin_of(std::span<const std::byte> memory) {
  return reinterpret_cast<std::uint64_t>(memory.data());
}

/// No two of them overlap. @thread  any
class registered_memory {
 public:
  struct buffer {
    std::uint64_t begin = 0, end = 0;
    std::mutex mutex;
    /// What whoever moves bytes has made of the buffer, such as its region on a NIC; under the mutex. It ends with the
    /// buffer, or, where a transfer still holds it, with that.
    std::shared_ptr<void> made;
  };

  /// @returns false where it overlaps with a registered buffer.
  bool add(std::uint64_t address, std::uint64_t bytes) {
    std::lock_guard lock{mutex_};
    if (bytes == 0 || bytes > ~std::uint64_t{0} - address || touches(address, address + bytes)) return false;
    auto added = std::make_shared<buffer>();
    added->begin = address;
    added->end = address + bytes;
    buffers_.emplace(address, std::move(added));
    return true;
  }
  /// A transfer under way goes on. @returns false where nothing that is registered begins there.
  bool drop(std::uint64_t address) {
    std::shared_ptr<buffer> dropped;  // outside of the lock: a NIC is told
    std::lock_guard lock{mutex_};
    const auto at = buffers_.find(address);
    if (at == buffers_.end()) return false;
    dropped = std::move(at->second);
    buffers_.erase(at);
    return true;
  }
  /// The buffer in which all of it lies. Null: none.
  std::shared_ptr<buffer> find(std::span<const std::byte> memory) const {
    std::shared_lock lock{mutex_};
    return within(begin_of(memory), end_of(memory));
  }
  /// Whether all of it lies in one buffer.
  bool holds(std::span<const std::byte> memory) const { return find(memory) != nullptr; }
  /// Whether a call may write there: all of it lies in one buffer, or none of it in any. Memory that touches
  /// no registered buffer is the caller's affair; past the end of one lies other memory.
  bool permits(std::span<const std::byte> memory) const {
    std::shared_lock lock{mutex_};
    return within(begin_of(memory), end_of(memory)) || !touches(begin_of(memory), end_of(memory));
  }

 private:
  static std::uint64_t end_of(std::span<const std::byte> m) { return begin_of(m) + m.size(); }
  std::shared_ptr<buffer> within(std::uint64_t begin, std::uint64_t end) const {
    const auto after = buffers_.upper_bound(begin);
    if (after == buffers_.begin() || end > std::prev(after)->second->end) return nullptr;
    return std::prev(after)->second;
  }
  bool touches(std::uint64_t begin, std::uint64_t end) const {
    const auto after = buffers_.lower_bound(end);
    return after != buffers_.begin() && begin < std::prev(after)->second->end;
  }

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<buffer>> buffers_;  // by where they begin
};

}  // namespace mooncaf
