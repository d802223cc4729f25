#pragma once
// Which NICs are near which memory, as sysfs tells it or as the options say.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// One NIC as sysfs describes it.
struct nic_place {
  std::string device;           ///< "mlx5_0"
  int numa_node = -1;           ///< -1: unknown, or the machine has one
  std::string pci_path;         ///< ".../pci0000:17/0000:17:01.0/0000:18:00.0"; empty for software devices
  std::string netdev;           ///< of the first port, if Ethernet
  std::uint32_t rate_gbit = 0;  ///< of the first port; 0: unknown
  std::string state;            ///< of the first port: "ACTIVE", "DOWN", …
};

/// All devices under `<sysfs>/class/infiniband`, by name. None is not an error.
std::vector<nic_place> read_nic_places(const std::string& sysfs_root);

/// Which NICs serve memory of which NUMA node.
class rail_topology {
 public:
  rail_topology() = default;
  /// @param overrides  "0=mlx5_0,mlx5_1": NUMA node and its devices, nearest first.
  /// @error `ec::invalid_argument` names the entry that cannot be read.
  static result<rail_topology> make(std::vector<nic_place> nics, const std::vector<std::string>& overrides);

  /// True if the device is among the nearest to memory of this node; always true for unknown nodes (-1) and
  /// where no device is near.
  bool is_near(const std::string& device, int numa_node) const;
  const std::vector<nic_place>& nics() const noexcept { return nics_; }
  /// A table for people.
  std::string render() const;

 private:
  struct assignment {
    int numa_node;
    std::vector<std::string> devices;
  };
  std::vector<nic_place> nics_;
  std::vector<assignment> overrides_;
};

/// NUMA node of the page at an address of this process, as the kernel reports it; -1 if it does not.
int numa_node_of(const void* at);

}  // namespace mooncaf
