#pragma once
// The options of RDMA. Defaults are for RoCE v2 and InfiniBand alike.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

struct rdma_options {
  bool enabled = true;               ///< without a usable device there is no RDMA path, whatever this says
  std::vector<std::string> devices;  ///< "mlx5_0" or "mlx5_0:1" (port); empty: all
  int gid_index = -1;                ///< of every port, [0, 255]; -1: chosen by type and address
  std::uint64_t slice_bytes = 256 * KiB;  ///< longer slices are cut, [4 KiB, 16 MiB]
  unsigned queue_depth = 128;             ///< orders under way per queue pair, [16, 4096]
  unsigned signal_every = 16;             ///< one completion for this many orders, [1, queue_depth / 2]
  unsigned inline_bytes =
      64;                    ///< shorter pieces are copied into the order, [0, 512]; less if the NIC says so
  unsigned max_links = 64;   ///< peers with queue pairs at once, outgoing, [1, 4096]; idle ones give way
  unsigned read_depth = 16;  ///< RDMA READs under way per queue pair, [1, 128]; less if the NIC says so
  duration poll_spin{};      ///< after work, poll this long before waiting for an event; 0: do not
  duration ack_timeout = std::chrono::milliseconds(67);  ///< NIC repeats a packet after it, [4.096 us, 17 s]
  unsigned retry_count = 7;                              ///< such repetitions until a rail has failed, [1, 7]
  duration rail_retry_after = std::chrono::milliseconds(200);  ///< doubled with every failure in a row
  duration rail_retry_max = std::chrono::seconds(10);          ///< up to this
  unsigned traffic_class = 0;  ///< of RoCE packets (DSCP << 2 | ECN), [0, 255]
  unsigned service_level = 0;  ///< of InfiniBand, [0, 15]
  /// Which devices serve memory of which NUMA node: "0=mlx5_0,mlx5_1". Empty: as sysfs tells it.
  std::vector<std::string> topology;
  std::string sysfs_root = "/sys";  ///< tests pass another
};

}  // namespace mooncaf
