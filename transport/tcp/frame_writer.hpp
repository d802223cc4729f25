#pragma once
// The sending half of a TCP link: asks its owner for frames and sends their payloads from where they lie.

#include <atomic>
#include <cstddef>
#include <deque>

#include "transport/tcp/tcp_link_owner.hpp"

namespace mooncaf {

/// @thread  the link's, with its I/O lock held, except where stated
class frame_writer {
 public:
  explicit frame_writer(tcp_link& link) : link_(link) {}

  /// Sends until the owner has no more, the socket takes no more, or `bytes_max` have left.
  /// @returns whether there is more to send when the socket is writable. @error the link is to die.
  result<bool> write(int fd, tcp_link_owner& owner, std::size_t bytes_max);
  /// The link is dead: tells the owner that no payload is looked at any more.
  void drop(tcp_link_owner* owner);

  /// Bytes of this region are being sent.
  bool reads(region_id region) const noexcept;
  /// Bytes sent so far. @thread  any
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t batch_frames_max = 16;

  struct sending {
    outgoing_frame frame;
    frame_header_buffer header;
  };

  void fill_batch(tcp_link_owner& owner);
  result<bool> send_batch(int fd);
  void retire_sent(tcp_link_owner& owner);

  tcp_link& link_;
  std::deque<sending> batch_;
  std::size_t batch_sent_ = 0;  // bytes of the first frame of the batch that have left
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace mooncaf
