#pragma once
// One peer's access to this node's memory over TCP: the connections of one session that the peer opened.

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/node_state.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace mooncaf {

/// Receives writes into regions, answers reads from them. Every access is checked against the region table
/// when its frame begins (or, for reads, when it leaves).
class tcp_inbound : public tcp_link_owner, public std::enable_shared_from_this<tcp_inbound> {
 public:
  using ended_handler = std::function<void(tcp_inbound&)>;

  tcp_inbound(node_state& node, const link_identity& peer, ended_handler on_ended);

  /// @returns false if the session is over: the link must not be admitted.
  bool add(std::shared_ptr<tcp_link> link);
  /// The fence of this session: when it returns, no byte of it can land any more.
  void end(const error& why);
  /// Ends the session if a region is being written or read right now.
  void end_if_using(region_id region);
  const link_identity& peer() const noexcept { return peer_; }

  // tcp_link_owner
  result<frame_sink> on_header(tcp_link& link, const frame_header& h) override;
  result<void> on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                        std::span<const std::byte> control) override;
  bool next_frame(tcp_link& link, outgoing_frame& out) override;
  void on_sent(tcp_link&, const outgoing_frame&) override {}
  void on_abandoned(tcp_link& link, const frame_header& h, const frame_sink& sink) override;
  void on_broken(tcp_link& link, const error& why) override;

 private:
  /// A write in the course of arriving. Transfers that have ended have none: pieces that still come are
  /// discarded.
  struct assembly {
    transfer_tag tag;
    std::uint64_t bytes = 0;
    std::vector<bool> begun;
    std::uint32_t done = 0;
    std::uint32_t receiving = 0;  // connections that are writing a piece of it into memory
    bool failed = false;          // refused or cancelled; the sender hears it when `receiving` is 0
    bool corrupt = false;
    error cause;
    tcp_link* cancelled_by = nullptr;
  };
  /// A frame or a piece to read, waiting for its connection.
  struct answer {
    outgoing_frame frame;
    bool is_read = false;
    read_entry entry;
  };

  result<frame_sink> begin_write(tcp_link& link, const frame_header& h);
  result<void> end_write(tcp_link& link, const frame_header& h, const frame_sink& sink);
  void conclude(tcp_link& link, transfer_id id, assembly& a);
  void fail_write(tcp_link& link, transfer_id id, assembly& a, error why);
  result<void> begin_read(tcp_link& link, const frame_header& h, std::span<const std::byte> control);
  void cancel(tcp_link& link, transfer_id id);
  void answer_failed(tcp_link& link, transfer_id id);
  void answer_repeated(tcp_link& link, transfer_id id, landing_log::state state);
  void reply(tcp_link& link, frame_type type, transfer_id id, const error& outcome);
  static bool may_wait(const std::deque<answer>& queue);
  bool make_read_frame(transfer_id id, const read_entry& e, outgoing_frame& out);

  node_state& node_;
  const link_identity peer_;
  ended_handler on_ended_;

  std::mutex mutex_;
  std::vector<std::shared_ptr<tcp_link>> links_;
  std::unordered_map<transfer_id, assembly> assemblies_;
  std::deque<std::pair<transfer_id, error>> refused_;  // lately, and why
  std::unordered_map<tcp_link*, std::deque<answer>> answers_;
  bool over_ = false;
  bool end_reported_ = false;
};

}  // namespace mooncaf
