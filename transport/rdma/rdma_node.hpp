#pragma once
// Data that the links of one node share: its rails, its registered memory, its figures.

#include <memory>
#include <mutex>
#include <vector>

#include "transport/net/event_loop.hpp"
#include "transport/node_state.hpp"
#include "transport/rdma/device.hpp"
#include "transport/rdma/rdma_memory.hpp"
#include "transport/rdma/topology.hpp"

namespace mooncaf {

/// Figures by rail. @thread  any
class rail_table {
 public:
  void resize(std::size_t rails) { lines_.resize(rails); }
  template <class F>
  void update(std::size_t rail, F&& change) {
    std::lock_guard lock{mutex_};
    change(lines_[rail]);
  }
  std::vector<rail_stats> all() const {
    std::lock_guard lock{mutex_};
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<rail_stats> lines_;
};

struct rdma_node {
  node_state& node;
  std::vector<std::shared_ptr<local_rail>> rails;
  rdma_memory memory;
  rail_topology topology;
  rail_table figures;
  event_loop* loop = nullptr;

  const rdma_options& options() const noexcept { return node.options.rdma; }
};

}  // namespace mooncaf
