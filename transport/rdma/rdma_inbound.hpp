#pragma once
// One peer's access to this node's memory over RDMA: the owner's end of a link. The peer's NIC writes without
// our help; here its notices are verified and announced, keys are handed out, and queue pairs are taken away
// again.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/rdma/control_link.hpp"
#include "transport/rdma/queue_pair.hpp"
#include "transport/rdma/rdma_node.hpp"

namespace mooncaf {

/// @thread  the transport's loop
class rdma_inbound : public std::enable_shared_from_this<rdma_inbound> {
 public:
  using ended_handler = std::function<void(rdma_inbound&)>;

  rdma_inbound(rdma_node& shared, const link_identity& peer, ended_handler on_ended);

  /// The owner of the control link, for its admission.
  std::shared_ptr<control_link> attach(std::shared_ptr<tcp_link> link);
  bool poll();
  void arm();
  /// The fence: when it returns, no byte of this link can land any more.
  void end(const error& why);
  const link_identity& peer() const noexcept { return peer_; }

 private:
  struct rail final : queue_pair_owner {
    rail(rdma_inbound& o, std::uint32_t n) : owner(o), number(n) {}
    void on_done(const rdma_item& item) override { owner.unconfirmed_.erase(item.id); }
    void on_message(std::span<const std::byte> message) override { owner.on_message(message); }

    rdma_inbound& owner;
    const std::uint32_t number;
    std::unique_ptr<queue_pair> pair;
  };
  /// A write in the course of arriving.
  struct assembly {
    transfer_tag tag;
    std::uint64_t total_bytes = 0;
    std::vector<bool> seen;  // pieces told of
    std::uint32_t seen_count = 0;
    std::uint32_t verified = 0;
    std::uint64_t bytes = 0;
    bool corrupt = false;
    error cause;
  };
  struct unverified {
    transfer_id id;
    bool has_checksum = false;
    rdma_notice_piece piece;
  };

  void on_control(const rdma_control& c);
  void connect_rail(const rdma_control& c);
  void retire_rail(std::uint32_t number);
  void lose_rail(std::uint32_t number, const std::string& why);
  void grant(const rdma_control& c);
  void answer_query(transfer_id id);
  void abandon(transfer_id id);
  void on_message(std::span<const std::byte> message);
  void on_notice(const rdma_notice& n);
  bool verify_some();
  void verify(const unverified& u);
  void conclude(transfer_id id);
  void acknowledge(transfer_id id, error outcome);

  rdma_node& shared_;
  node_state& node_;
  const link_identity peer_;
  ended_handler on_ended_;
  std::shared_ptr<control_link> control_;
  std::map<std::uint32_t, std::unique_ptr<rail>> rails_;
  std::unordered_map<transfer_id, assembly> assemblies_;
  std::deque<unverified> unverified_;
  std::unordered_map<transfer_id, error> unconfirmed_;  // acknowledgements on their way over queue pairs
  std::vector<landing> landed_;                         // to be announced outside of the completion queue
  error broken_;                                        // the peer broke the protocol
  bool ended_ = false;
};

}  // namespace mooncaf
