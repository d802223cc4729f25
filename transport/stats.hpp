#pragma once
// Bytes and transfers between two nodes, by path.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

/// Latency of completed transfers. Bucket i counts transfers that took less than 2^i microseconds (and not
/// less than half of that); the last one takes all that are slower.
struct latency_summary {
  static constexpr std::size_t bucket_count = 26;

  std::uint64_t count = 0;
  double sum_seconds = 0;
  double max_seconds = 0;
  std::array<std::uint64_t, bucket_count> buckets{};

  void add(double seconds) noexcept {
    const auto us = seconds > 0 ? static_cast<std::uint64_t>(seconds * 1e6) : 0;
    const auto bucket = static_cast<std::size_t>(std::bit_width(us));
    ++buckets[bucket < bucket_count ? bucket : bucket_count - 1];
    ++count;
    sum_seconds += seconds;
    if (seconds > max_seconds) max_seconds = seconds;
  }
};

/// One direction-less line per (peer, path). This node submitted the outgoing transfers.
struct path_stats {
  node_id peer;
  transfer_path path = transfer_path::none;
  std::uint64_t bytes_written = 0;      ///< to the peer, acknowledged
  std::uint64_t bytes_read = 0;         ///< from the peer
  std::uint64_t bytes_landed = 0;       ///< written here by the peer, verified
  std::uint64_t transfers = 0;          ///< submitted here and completed with success
  std::uint64_t failures = 0;           ///< attempts on this path that failed
  std::uint64_t slices = 0;             ///< pieces after cutting, of outgoing transfers
  std::uint64_t landings = 0;           ///< announced here
  std::uint64_t control_messages = 0;   ///< notices, acknowledgements, read and cancel requests sent
  std::uint64_t retries = 0;            ///< attempts that moved here from another path or a broken link
  std::uint64_t checksum_failures = 0;  ///< found here
  latency_summary latency;

  /// Payload over this path in both directions.
  std::uint64_t bytes() const noexcept { return bytes_written + bytes_read + bytes_landed; }
};

/// One RDMA rail of this node, to all peers together. Counts the work that this node initiated.
struct rail_stats {
  std::string name;  ///< "mlx5_0:1"
  std::string address;
  bool up = false;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t slices = 0;    ///< pieces moved
  std::uint64_t retries = 0;   ///< pieces that moved here after another rail had failed
  std::uint64_t failures = 0;  ///< times a queue pair on it broke or could not be made
  std::string last_error;
  latency_summary latency;  ///< of pieces: posted to completed
};

}  // namespace mooncaf
