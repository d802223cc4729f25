#pragma once
// Bytes between hosts: striped TCP connections, made on first use, kept while the peer lives.

#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "transport/node_state.hpp"
#include "transport/tcp/tcp_inbound.hpp"
#include "transport/tcp/tcp_session.hpp"
#include "transport/transport.hpp"

namespace mooncaf {

class tcp_transport final : public transport {
 public:
  /// Listens at `options.listen_host:data_port`.
  static result<std::unique_ptr<tcp_transport>> start(node_state& node);
  ~tcp_transport() override;

  std::uint16_t port() const noexcept { return port_; }

  std::string_view name() const noexcept override { return "tcp"; }
  transfer_path path() const noexcept override { return transfer_path::tcp; }
  transport_capabilities capabilities(node_id peer) const override;
  result<std::vector<std::byte>> register_region(region_id id) override;
  result<void> unregister_region(region_id id) override;
  void submit(transfer what, completion_handler on_done) override;
  void cancel(transfer_id id) override;
  void connect(node_id peer) override;
  void disconnect(node_id peer) override;
  result<void> close(node_id peer) override;

  /// Adds the incarnations of a node that has links to us now.
  void incarnations_of(node_id node, std::set<std::uint64_t>& out);

 private:
  explicit tcp_transport(node_state& node) : node_(node) {}
  result<std::shared_ptr<tcp_session>> session_to(node_id peer);
  void accept_all();
  result<std::shared_ptr<tcp_link_owner>> admit(tcp_link& link, const link_identity& peer);
  bool tick();
  std::vector<std::shared_ptr<tcp_session>> sessions() const;

  /// A connection that has not proven itself yet; dropped after `connect_timeout`.
  struct newcomer {
    std::shared_ptr<tcp_link> link;
    time_point since;
  };

  node_state& node_;
  unique_fd listener_;
  std::uint16_t port_ = 0;

  mutable std::mutex mutex_;
  std::unordered_map<node_id, std::shared_ptr<tcp_session>> outgoing_;
  std::vector<std::shared_ptr<tcp_inbound>> incoming_;
  std::vector<newcomer> newcomers_;
  std::size_t next_loop_ = 0;
  bool stopping_ = false;
  std::vector<std::unique_ptr<event_loop>> loops_;  // last: its threads use all of the above
};

}  // namespace mooncaf
