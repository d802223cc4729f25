#pragma once
// The verbs objects of one NIC, and the ports of it that can be used.

#include <infiniband/verbs.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/rdma/rail.hpp"
#include "transport/rdma/rdma_options.hpp"
#include "transport/region.hpp"

namespace mooncaf {

/// Calls a function of libibverbs on the pointer it owns.
template <auto Destroy>
struct verbs_deleter {
  template <class T>
  void operator()(T* object) const noexcept {
    Destroy(object);
  }
};
// Plain functions, since some verbs are macros.
inline void deregister_memory(::ibv_mr* mr) noexcept { ::ibv_dereg_mr(mr); }
using verbs_context = std::unique_ptr<::ibv_context, verbs_deleter<::ibv_close_device>>;
using verbs_domain = std::unique_ptr<::ibv_pd, verbs_deleter<::ibv_dealloc_pd>>;
using verbs_events = std::unique_ptr<::ibv_comp_channel, verbs_deleter<::ibv_destroy_comp_channel>>;
using verbs_queue = std::unique_ptr<::ibv_cq, verbs_deleter<::ibv_destroy_cq>>;
using verbs_pair = std::unique_ptr<::ibv_qp, verbs_deleter<::ibv_destroy_qp>>;
using verbs_memory = std::unique_ptr<::ibv_mr, verbs_deleter<deregister_memory>>;

/// One NIC: context, protection domain, completion events. Immutable once open; outlives every queue pair and
/// memory region made with it.
struct rdma_device {
  std::string name;
  verbs_context context;
  verbs_domain domain;
  verbs_events events;
  ::ibv_device_attr limits{};

  static result<std::shared_ptr<rdma_device>> open(::ibv_device* which);
  /// Registers host memory for one-sided access by peers that know its key.
  /// @error `ec::io_error` with the likely cause (RLIMIT_MEMLOCK).
  result<verbs_memory> register_memory(std::span<std::byte> bytes) const;
  /// Registers memory of an accelerator: its dma-buf if there is one, else as peer memory.
  /// @error `ec::unsupported` names the cause.
  result<verbs_memory> register_memory(const device_memory& memory) const;
};

/// A rail of this node.
struct local_rail {
  std::shared_ptr<rdma_device> device;
  std::uint8_t port = 1;
  rail_location location;
  std::atomic<bool> up{false};

  std::string name() const { return location.address.name; }
};

/// State of a port and the GID to use now (an address may have come, gone or moved in the table).
struct port_state {
  bool active = false;
  ::ibv_port_attr port{};
  gid_entry gid;
};
result<port_state> query_port(const rdma_device& device, std::uint8_t port, int wanted_gid);

/// Opens all devices that the options allow. A port without a usable GID is left out with a reason.
struct discovery {
  std::vector<std::shared_ptr<rdma_device>> devices;
  std::vector<std::shared_ptr<local_rail>> rails;
  std::vector<std::string> left_out;  ///< "mlx5_1:1: …"; for the log
};
discovery discover(const rdma_options& options);

}  // namespace mooncaf
