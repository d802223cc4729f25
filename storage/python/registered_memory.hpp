#pragma once
// The buffers that callers of a store have registered, and where a call may write because of them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <span>

namespace mooncaf {

/// No two of them overlap. @thread  any
class registered_memory {
 public:
  /// @returns false where it overlaps with a registered buffer.
  bool add(std::uint64_t address, std::uint64_t bytes) {
    std::lock_guard lock{mutex_};
    if (bytes == 0 || bytes > ~std::uint64_t{0} - address || touches(address, address + bytes)) return false;
    ends_.emplace(address, address + bytes);
    return true;
  }
  /// @returns false where nothing that is registered begins there.
  bool drop(std::uint64_t address) {
    std::lock_guard lock{mutex_};
    return ends_.erase(address) != 0;
  }
  /// Whether all of it lies in one buffer.
  bool holds(std::span<const std::byte> memory) const {
    std::shared_lock lock{mutex_};
    return within(begin_of(memory), end_of(memory));
  }
  /// Whether a call may write there: all of it lies in one buffer, or none of it in any. Memory that touches
  /// no registered buffer is the caller's affair; past the end of one lies other memory.
  bool permits(std::span<const std::byte> memory) const {
    std::shared_lock lock{mutex_};
    return within(begin_of(memory), end_of(memory)) || !touches(begin_of(memory), end_of(memory));
  }

 private:
  static std::uint64_t begin_of(std::span<const std::byte> m) {
    return reinterpret_cast<std::uint64_t>(m.data());
  }
  static std::uint64_t end_of(std::span<const std::byte> m) { return begin_of(m) + m.size(); }
  bool within(std::uint64_t begin, std::uint64_t end) const {
    const auto after = ends_.upper_bound(begin);
    return after != ends_.begin() && end <= std::prev(after)->second;
  }
  bool touches(std::uint64_t begin, std::uint64_t end) const {
    const auto after = ends_.lower_bound(end);
    return after != ends_.begin() && begin < std::prev(after)->second;
  }

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ends_;  // by where they begin
};

}  // namespace mooncaf
