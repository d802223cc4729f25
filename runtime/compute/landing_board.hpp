#pragma once
// Counts landings for requests whose KV is on its way here. The data plane's threads report; a decode worker
// hears once per request, when everything expected is in or something was corrupt. A load that takes the KV
// on to a device hears of every piece.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/compute/kv_piece.hpp"

namespace mooncaf {

/// @thread Safe. Callbacks run on the thread that completed the count, without a lock held.
class landing_board {
 public:
  using callback = std::function<void(bool complete)>;
  using piece_callback = std::function<void(const kv_piece&)>;

  /// Landings for `owner` count from now on; landings of owners that are not open are ignored.
  /// @param on_piece  if set, called for each piece that is in memory and verified, from several threads at
  /// once;
  ///                  for all of them before `on_complete(true)`. After `close` a last one may come.
  void open(std::uint64_t owner, callback on_complete, piece_callback on_piece = {});
  /// One transfer for `owner` is in memory; `verified` tells whether its checksum was right.
  void landed(std::uint64_t owner, bool verified, const kv_piece& what = {});
  /// How many landings make it complete.
  void expect(std::uint64_t owner, std::uint32_t count);
  /// Forgets the owner; its callback will not be called any more.
  void close(std::uint64_t owner);

  std::size_t size() const;

 private:
  struct entry {
    callback on_complete;
    std::shared_ptr<const piece_callback> on_piece;  ///< null: pieces are not told
    std::uint32_t landed = 0;
    std::optional<std::uint32_t> expected;
  };
  void settle(std::unique_lock<std::mutex>& lock, std::unordered_map<std::uint64_t, entry>::iterator i,
              bool ok);

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, entry> entries_;
};

}  // namespace mooncaf
