#pragma once
// The receiving half of a TCP link: cuts the socket's bytes into frames, and puts every payload where its
// owner wants it. Long ones come by way of the core's cache and are hashed as they go on.

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "transport/copy/stream_copy.hpp"
#include "transport/tcp/tcp_link_owner.hpp"

namespace mooncaf {

/// @thread  the link's, with its I/O lock held, except where stated
class frame_reader {
 public:
  explicit frame_reader(tcp_link& link) : link_(link) {}

  /// Reads the bytes that have come, up to `bytes_max`. @error the link is to die.
  result<void> read(int fd, tcp_link_owner& owner, std::size_t bytes_max);
  /// The link is dead: gives up the frame that is incomplete.
  void abandon(tcp_link_owner* owner);

  /// Bytes of this region are being received.
  bool fills(region_id region) const noexcept {
    return in_payload_ && sink_.to == frame_sink::kind::memory && sink_.region == region;
  }
  /// A payload is arriving with more to come from its sender.
  bool amid_a_stream() const noexcept { return in_payload_ && header_.more; }
  /// Bytes received so far. @thread  any
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// The other side closed the connection, or its kernel did for it. @thread  any
  bool closed_by_peer() const noexcept { return closed_by_peer_; }

 private:
  static constexpr std::size_t left_over_max = 1088;

  std::span<::iovec> room(std::array<::iovec, 2>& parts);
  result<void> take(std::size_t n, tcp_link_owner& owner);
  void land(std::size_t n);
  result<void> begin_frame(tcp_link_owner& owner);
  result<void> end_frame(tcp_link_owner& owner);

  tcp_link& link_;
  frame_header_buffer header_bytes_{};
  std::size_t header_have_ = 0;
  bool in_payload_ = false;
  frame_header header_;
  frame_sink sink_;
  std::size_t payload_have_ = 0;
  bool staged_ = false;        // the payload passes through the landing room on its way into memory
  copy_in_parts landed_;       // of it
  std::size_t left_over_ = 0;  // bytes of it that have come and are to be copied with later ones
  std::array<std::byte, left_over_max> left_;
  std::vector<std::byte> control_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> closed_by_peer_{false};
};

}  // namespace mooncaf
