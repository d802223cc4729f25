#pragma once
// The parts of a data plane; for its own sources only.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/data_plane.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/node_state.hpp"
#include "transport/rdma/rdma_transport.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace mooncaf {

class data_plane::impl {
 public:
  /// A submitted transfer on its way through the paths.
  struct order {
    transfer what;
    completion_handler on_done;
    std::vector<std::shared_ptr<local_region>> uses;
    time_point submitted;
    std::vector<transport*> paths;  // still to be tried
    transport* current = nullptr;
    bool cancelled = false;
    bool unfenced = false;  // an earlier attempt left bytes under way
  };
  /// Which device memory a transfer touches.
  struct device_use {
    std::string first;  ///< for people; empty: none
    std::set<region_id> local;

    void add(node_id owner, region_id id, bool mine) {
      if (first.empty()) first = "region " + to_string(id) + " of node " + to_string(owner);
      if (mine) local.insert(id);
    }
  };

  node_state node;
  std::unique_ptr<local_transport> local;
  std::unique_ptr<shm_transport> shm;
  std::unique_ptr<rdma_transport> rdma;
  std::vector<std::string> rdma_notes;
  std::unique_ptr<tcp_transport> tcp;

  std::mutex mutex;  // orders, health
  std::unordered_map<transfer_id, std::shared_ptr<order>> orders;
  std::map<std::pair<node_id, transfer_path>, time_point> avoided_until;
  bool stopping = false;
  landing_log delivered;  // own writes that succeeded, so that a repetition moves nothing
  landing_log tried;      // own writes that failed and may have landed for all this node knows
  std::atomic<std::uint64_t> next_region{1};

  result<void> begin();
  /// For people; only where there is none.
  std::string why_no_rdma() const { return rdma_notes.empty() ? "this node has no RDMA" : rdma_notes.back(); }
  std::vector<transport*> transports() const;
  std::vector<transport*> paths_to(node_id peer);
  result<void> keep_device_paths(node_id peer, const device_use& use, std::vector<transport*>& paths) const;
  result<device_use> check(const transfer& t) const;
  result<std::vector<std::shared_ptr<local_region>>> use_regions(const transfer& t) const;
  void submit(transfer what, completion_handler on_done);
  void attempt(const std::shared_ptr<order>& o);
  void attempt_ended(const std::shared_ptr<order>& o, completion c);
  void finish(const std::shared_ptr<order>& o, completion c);
  void refuse(const transfer& what, completion_handler& on_done, error why);
  void count(const order& o, const completion& c);
};

}  // namespace mooncaf
