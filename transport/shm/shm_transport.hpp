#pragma once
// Bytes between processes of one host: the writer copies straight into the peer's mapped memory.
//
// One thread per node copies, verifies and answers, a piece at a time, so that nothing waits long for
// anything else.

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/node_state.hpp"
#include "transport/shm/shm_inbound.hpp"
#include "transport/shm/shm_outbound.hpp"
#include "transport/submissions.hpp"
#include "transport/transport.hpp"

namespace mooncaf {

class shm_transport final : public transport, private loop_poller {
 public:
  static result<std::unique_ptr<shm_transport>> start(node_state& node);
  ~shm_transport() override;

  /// Name of the listening socket, as `peer_address::unix_name`.
  const std::string& socket_name() const noexcept { return name_; }

  std::string_view name() const noexcept override { return "shm"; }
  transfer_path path() const noexcept override { return transfer_path::shm; }
  transport_capabilities capabilities(node_id peer) const override;
  result<std::vector<std::byte>> register_region(region_id id) override;
  result<void> unregister_region(region_id id) override;
  void submit(transfer what, completion_handler on_done) override;
  void cancel(transfer_id id) override;
  void connect(node_id peer) override;
  void disconnect(node_id peer) override;
  result<void> close(node_id peer) override;

  /// See `data_plane::map`.
  result<peer_view> map(node_id peer, region_id region, duration patience);

  /// Adds the incarnations of a node that has links to us now.
  void incarnations_of(node_id node, std::set<std::uint64_t>& out);

 private:
  explicit shm_transport(node_state& node) : node_(node) {}
  bool poll() override;
  void arm() override;
  void disarm() override;
  bool tick();
  void accept_all();
  void take_submissions();
  result<std::shared_ptr<shm_outbound>> link_to(node_id peer);
  result<void> fence(const std::vector<std::shared_ptr<shm_inbound>>& links);

  node_state& node_;
  std::string name_;
  unique_fd listener_;

  // Loop's thread.
  std::unordered_map<node_id, std::shared_ptr<shm_outbound>> outgoing_;
  std::vector<std::shared_ptr<shm_outbound>> polled_;
  bool stopping_ = false;

  std::mutex incoming_mutex_;  // the loop's thread changes the list, fences look at it
  std::vector<std::shared_ptr<shm_inbound>> incoming_;

  submissions submissions_;

  std::unique_ptr<event_loop> loop_;
};

}  // namespace mooncaf
