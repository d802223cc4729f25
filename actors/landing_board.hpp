#pragma once
// Counts what has landed for requests whose KV is on its way here. The data plane's threads report, a decode
// worker hears once per request: when everything expected is in, or when something was corrupt.

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace mooncaf {

/// @thread Safe. Callbacks run on the thread that completed the count, without a lock held.
class landing_board {
 public:
  using callback = std::function<void(bool complete)>;

  /// Landings for `owner` count from now on; others are ignored, since they belong to nobody any more.
  void open(std::uint64_t owner, callback on_complete);
  /// One transfer for `owner` is in memory; `verified` tells whether its checksum was right.
  void landed(std::uint64_t owner, bool verified);
  /// How many landings make it complete.
  void expect(std::uint64_t owner, std::uint32_t count);
  /// Forgets the owner; its callback will not be called any more.
  void close(std::uint64_t owner);

  std::size_t size() const;

 private:
  struct entry {
    callback on_complete;
    std::uint32_t landed = 0;
    std::optional<std::uint32_t> expected;
  };
  void settle(std::unique_lock<std::mutex>& lock, std::unordered_map<std::uint64_t, entry>::iterator i,
              bool ok);

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, entry> entries_;
};

}  // namespace mooncaf
