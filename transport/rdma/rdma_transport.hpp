#pragma once
// Bytes between hosts by one-sided verbs. One thread posts, takes completions and verifies; the NICs move the
// bytes.

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/rdma/rdma_inbound.hpp"
#include "transport/rdma/rdma_node.hpp"
#include "transport/rdma/rdma_outbound.hpp"
#include "transport/rdma/sieve.hpp"
#include "transport/submissions.hpp"
#include "transport/transport.hpp"

namespace mooncaf {

class rdma_transport final : public transport, private loop_poller {
 public:
  /// Opens the devices and listens for control links at `options.listen_host`, any port.
  /// @returns null if this host has no usable rail; `notes` says why, a line each.
  static result<std::unique_ptr<rdma_transport>> start(node_state& node, std::vector<std::string>& notes);
  ~rdma_transport() override;

  std::uint16_t port() const noexcept { return port_; }
  std::vector<rdma_rail_address> rail_addresses() const;
  std::vector<rail_stats> rail_figures() const;

  std::string_view name() const noexcept override { return "rdma"; }
  transfer_path path() const noexcept override { return transfer_path::rdma; }
  transport_capabilities capabilities(node_id peer) const override;
  result<std::vector<std::byte>> register_region(region_id id) override;
  result<void> unregister_region(region_id id) override;
  result<void> reaches(region_id local) const override;
  void submit(transfer what, completion_handler on_done) override;
  void cancel(transfer_id id) override;
  void connect(node_id peer) override;
  void disconnect(node_id peer) override;
  result<void> close(node_id peer) override;

  /// Adds the incarnations of a node that has links to us now.
  void incarnations_of(node_id node, std::set<std::uint64_t>& out);

 private:
  /// A connection that has not proven itself yet.
  struct newcomer {
    std::shared_ptr<tcp_link> link;
    time_point since;
  };

  rdma_transport(node_state& node, discovery found, rail_topology topology);
  result<void> listen();
  bool poll() override;
  void arm() override;
  void disarm() override {}
  bool tick();
  void watch_devices();
  void on_device_event(rdma_device& device);
  void refresh_ports(const rdma_device& device);
  void accept_all();
  result<std::shared_ptr<tcp_link_owner>> admit(tcp_link& link, const link_identity& peer);
  void take_submissions();
  result<std::shared_ptr<rdma_outbound>> link_to(node_id peer);
  result<void> make_room();
  void stop();

  node_state& node_;
  rdma_node shared_;
  unique_fd listener_;
  std::uint16_t port_ = 0;

  // Loop's thread.
  std::unordered_map<node_id, std::shared_ptr<rdma_outbound>> outgoing_;
  std::vector<std::shared_ptr<rdma_outbound>> ending_;  // wait for the peer's word that nothing can land
  std::vector<std::shared_ptr<rdma_inbound>> incoming_;
  std::vector<newcomer> newcomers_;
  sieve<node_id> pool_;
  bool stopping_ = false;

  submissions submissions_;

  std::unique_ptr<event_loop> loop_;  // last: its thread uses all of the above
};

}  // namespace mooncaf
