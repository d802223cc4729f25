#pragma once
// The authenticated TCP connection beside the queue pairs of a peer: carries messages that must arrive even
// when a rail is broken, and tells at once when the peer's process is gone.

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "transport/rdma/rdma_wire.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace mooncaf {

/// @thread  the transport's loop; handlers are called there without a lock
class control_link final : public tcp_link_owner, public std::enable_shared_from_this<control_link> {
 public:
  using control_handler = std::function<void(const rdma_control&)>;
  using broken_handler = std::function<void(const error&)>;

  control_link(control_handler on_control, broken_handler on_broken)
      : on_control_(std::move(on_control)), on_broken_(std::move(on_broken)) {}

  void attach(std::shared_ptr<tcp_link> link) { link_ = std::move(link); }
  /// Queued until the link is open.
  void send(const rdma_control& c);
  /// Ends the link; no handler is called afterwards.
  void close(const error& why);
  bool open() const noexcept { return link_ && link_->open(); }
  /// The other side closed it, or its kernel did when the process died. False for a network that went silent.
  bool closed_by_peer() const noexcept { return closed_by_peer_ || (link_ && link_->closed_by_peer()); }
  std::uint64_t progress() const noexcept { return link_ ? link_->progress() : 0; }

  // tcp_link_owner
  result<frame_sink> on_header(tcp_link& link, const frame_header& h) override;
  result<void> on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                        std::span<const std::byte> control) override;
  bool next_frame(tcp_link& link, outgoing_frame& out) override;
  void on_sent(tcp_link&, const outgoing_frame&) override {}
  void on_abandoned(tcp_link&, const frame_header&, const frame_sink&) override {}
  void on_broken(tcp_link& link, const error& why) override;

 private:
  control_handler on_control_;
  broken_handler on_broken_;
  std::shared_ptr<tcp_link> link_;
  bool closed_by_peer_ = false;
  std::mutex mutex_;
  std::deque<std::vector<std::byte>> queue_;
};

}  // namespace mooncaf
