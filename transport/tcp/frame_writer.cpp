#include "transport/tcp/frame_writer.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/posix.hpp"

namespace mooncaf {

result<bool> frame_writer::write(int fd, tcp_link_owner& owner, std::size_t bytes_max) {
  const auto until = bytes_.load() + bytes_max;
  for (;;) {
    fill_batch(owner);
    if (batch_.empty()) return false;
    if (bytes_.load() >= until) return true;
    const auto blocked = send_batch(fd);
    if (!blocked) return fail(blocked.error());
    retire_sent(owner);
    if (*blocked) return true;
  }
}

void frame_writer::drop(tcp_link_owner* owner) {
  for (auto& s : batch_)
    if (owner) owner->on_sent(link_, s.frame);
  batch_.clear();
}

bool frame_writer::reads(region_id region) const noexcept {
  return std::any_of(batch_.begin(), batch_.end(),
                     [&](const sending& s) { return s.frame.region == region; });
}

void frame_writer::fill_batch(tcp_link_owner& owner) {
  constexpr std::size_t batch_bytes = 128 * KiB;  // small frames share a system call
  std::size_t bytes = 0;
  for (const auto& s : batch_) bytes += s.frame.header.payload_bytes;
  while (batch_.size() < batch_frames_max && bytes < batch_bytes) {
    sending next;
    if (!owner.next_frame(link_, next.frame)) return;
    next.header = encode_frame(next.frame.header);
    bytes += next.frame.header.payload_bytes;
    batch_.push_back(std::move(next));
  }
}

// Headers and payloads go out in one system call, without being copied together first.
// @returns whether the socket takes no more for now.
result<bool> frame_writer::send_batch(int fd) {
  ::iovec parts[2 * batch_frames_max];
  std::size_t count = 0;
  std::size_t skip = batch_sent_;
  std::size_t asked = 0;
  const auto add = [&](const std::byte* at, std::size_t n) {
    const std::size_t gone = std::min(skip, n);
    skip -= gone;
    if (n == gone) return;
    parts[count++] = {const_cast<std::byte*>(at + gone), n - gone};
    asked += n - gone;
  };
  for (const auto& s : batch_) {
    add(s.header.data(), s.header.size());
    add(s.frame.payload, s.frame.header.payload_bytes);
  }
  ::msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const auto n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  if (n < 0 && errno == EINTR) return false;
  if (n < 0 && errno == EAGAIN) return true;
  if (n < 0) return fail(ec::peer_lost, "the connection broke: " + errno_text(errno));
  bytes_ += static_cast<std::uint64_t>(n);
  batch_sent_ += static_cast<std::size_t>(n);
  return static_cast<std::size_t>(n) < asked;
}

void frame_writer::retire_sent(tcp_link_owner& owner) {
  while (!batch_.empty()) {
    const std::size_t whole = frame_header_bytes + batch_.front().frame.header.payload_bytes;
    if (batch_sent_ < whole) break;
    batch_sent_ -= whole;
    const auto done = std::move(batch_.front());
    batch_.pop_front();
    owner.on_sent(link_, done.frame);
  }
}

}  // namespace mooncaf
