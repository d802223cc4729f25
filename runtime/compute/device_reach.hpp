#pragma once
// Whether NICs read the KV in a device's own memory, so that it leaves for other nodes without passing
// through the host's.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "gpu/copy_queue.hpp"
#include "runtime/base/device_kv_stats.hpp"
#include "runtime/base/ids.hpp"

namespace mooncaf {

class data_plane;
class device_kv;

/// Immutable but for the counters. @thread safe.
struct device_reach {
  region_id region;     ///< of the device's KV blocks; none: KV leaves from the host's copy
  device_bytes base;    ///< where it begins
  std::string why_not;  ///< for people; empty where there is a region
  std::atomic<std::uint64_t> sent_bytes{0};  ///< that NICs read there, and that landed
};

/// Offers a GPU's memory to this node's NICs, as a dma-buf where the driver exports one and a NIC imports it,
/// else as peer memory (nvidia-peermem).
/// @param memory  stays where it is while `plane` lives; `bytes` of it.
std::shared_ptr<device_reach> offer_to_nics(data_plane& plane, device_bytes memory, std::uint64_t bytes);

/// How a device's KV stands, for a report. @param blocks  null: no device has memory of its own. @param reach
/// may be null.
device_kv_stats stats_of(const device_kv* blocks, const device_reach* reach);

}  // namespace mooncaf
