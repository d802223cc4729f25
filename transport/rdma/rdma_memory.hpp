#pragma once
// Local regions as the NICs know them: one memory region per device.

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/node_state.hpp"
#include "transport/rdma/device.hpp"

namespace mooncaf {

/// The registrations of one region; index = number of the device. A device that refused has none, but a
/// reason.
struct registered_region {
  std::vector<verbs_memory> by_device;
  std::vector<std::string> refusals;  ///< empty text: it took the region
  memory_kind kind = memory_kind::host;
  int numa_node = -1;  ///< of host memory, where the kernel tells it

  bool reachable() const noexcept;
  /// For people, if it is not.
  std::string why_not() const;
};

/// @thread  any
class rdma_memory {
 public:
  explicit rdma_memory(std::vector<std::shared_ptr<rdma_device>> devices) : devices_(std::move(devices)) {}

  /// Devices that refuse are noted; host memory that none takes is reached over other paths.
  std::shared_ptr<const registered_region> add(const local_region& region);
  /// Afterwards no NIC lets a peer reach the region.
  void remove(region_id id);
  std::shared_ptr<const registered_region> find(region_id id) const;
  std::size_t device_number(const rdma_device& d) const;
  const std::vector<std::shared_ptr<rdma_device>>& devices() const noexcept { return devices_; }

 private:
  std::vector<std::shared_ptr<rdma_device>> devices_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<region_id, std::shared_ptr<registered_region>> regions_;
};

}  // namespace mooncaf
