#pragma once
// Counts of the KV blocks in a device's own memory, and of the bytes and tokens that they took and saved.

#include <cstdint>
#include <string>

namespace mooncaf {

/// Counts since the device was opened; all 0 where it computes in the host's blocks.
struct device_kv_stats {
  std::uint64_t blocks = 0;         ///< in all
  std::uint64_t blocks_used = 0;    ///< that hold something
  std::uint64_t hit_tokens = 0;     ///< positions that a pass read and that were there already
  std::uint64_t loaded_tokens = 0;  ///< … that had to come from the host's memory
  std::uint64_t loaded_bytes = 0;
  std::uint64_t stored_bytes = 0;      ///< written back to the host's memory
  std::uint64_t unwritten_blocks = 0;  ///< now, that the host's memory does not have
  std::uint64_t lost_blocks = 0;       ///< that left before they could be written back
  std::uint64_t sent_bytes = 0;        ///< that NICs read from the device's memory
  /// Why no NIC reads there, so that KV leaves from the host's copy; empty: they do, or nothing leaves.
  std::string unreached;
};

}  // namespace mooncaf
