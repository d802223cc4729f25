#include "transport/tcp/frame_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/posix.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {
namespace {

std::span<std::byte> scratch() {
  thread_local std::vector<std::byte> bytes(64 * KiB);
  return bytes;
}

// Where long payloads come out of the kernel: in the core's own cache. From there one pass hashes them and
// streams them to where they belong, which takes less than to have the kernel write to cold memory alone.
std::span<std::byte> landing_room() {
  thread_local std::vector<std::byte> bytes(128 * KiB);
  return bytes;
}
// Shorter payloads stay in the cache for the thread that asked for them.
constexpr std::size_t staged_from = 32 * KiB;

}  // namespace

bool is_intact(const frame_header& h, const frame_sink& sink, bool verify) {
  if (sink.to != frame_sink::kind::memory || !h.has_checksum || !verify) return true;
  return (sink.sum ? *sink.sum : wide_checksum(sink.at, h.payload_bytes)) == h.checksum;
}

// One call takes the rest of a payload and, with it, the next header.
result<void> frame_reader::read(int fd, tcp_link_owner& owner, std::size_t bytes_max) {
  std::size_t budget = bytes_max;
  while (budget > 0) {
    std::array<::iovec, 2> parts;
    const auto wanted = room(parts);
    std::size_t asked = 0;
    for (const auto& part : wanted) asked += part.iov_len;
    const auto n = ::readv(fd, wanted.data(), static_cast<int>(wanted.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return {};
    if (n == 0 || (n < 0 && errno == ECONNRESET)) closed_by_peer_ = true;
    if (n == 0) return fail(ec::peer_lost, "the peer closed the connection");
    if (n < 0) return fail(ec::peer_lost, "the connection broke: " + errno_text(errno));
    const auto got = static_cast<std::size_t>(n);
    bytes_ += got;
    if (const auto r = take(got, owner); !r) return r;
    if (got < asked) return {};  // drained; more makes another event
    budget -= std::min(budget, got);
  }
  return {};
}

std::span<::iovec> frame_reader::room(std::array<::iovec, 2>& parts) {
  if (!in_payload_) {
    parts[0] = {header_bytes_.data() + header_have_, header_bytes_.size() - header_have_};
    return {parts.data(), 1};
  }
  const std::size_t left = header_.payload_bytes - payload_have_;
  if (sink_.to == frame_sink::kind::control) parts[0] = {control_.data() + payload_have_, left};
  else if (sink_.to == frame_sink::kind::discard)
    parts[0] = {scratch().data(), std::min(left, scratch().size())};
  else if (!staged_) parts[0] = {sink_.at + payload_have_, left};
  else {
    const auto landing = landing_room().subspan(left_over_);
    parts[0] = {landing.data(), std::min(left, landing.size())};
  }
  parts[1] = {header_bytes_.data(), header_bytes_.size()};
  return {parts.data(), parts[0].iov_len == left ? 2u : 1u};
}

result<void> frame_reader::take(std::size_t n, tcp_link_owner& owner) {
  if (in_payload_) {
    const std::size_t part = std::min<std::size_t>(n, header_.payload_bytes - payload_have_);
    payload_have_ += part;
    n -= part;
    if (staged_) land(part);
    if (payload_have_ < header_.payload_bytes) return {};
    if (const auto r = end_frame(owner); !r) return r;
  }
  header_have_ += n;
  return header_have_ == frame_header_bytes ? begin_frame(owner) : result<void>{};
}

// Moves the bytes of the landing room on into memory: the rest of the call before, and `n` more. Their
// checksum is taken in the same pass; it works in blocks, so that the end of a part waits for the next.
void frame_reader::land(std::size_t n) {
  const auto landing = landing_room();
  std::memcpy(landing.data(), left_.data(), left_over_);
  const std::size_t have = left_over_ + n;
  auto* const to = sink_.at + landed_.bytes;
  if (payload_have_ == header_.payload_bytes) {
    sink_.sum = stream_copy_last(landed_, to, landing.data(), have);
    fence_streamed_stores();
    left_over_ = 0;
    return;
  }
  const auto taken = stream_copy_part(landed_, to, landing.data(), have);
  left_over_ = have - taken;
  std::memcpy(left_.data(), landing.data() + taken, left_over_);
}

result<void> frame_reader::begin_frame(tcp_link_owner& owner) {
  header_have_ = 0;
  const auto h = parse_frame(header_bytes_);
  if (!h) return fail(h.error());
  header_ = *h;
  auto sink = owner.on_header(link_, header_);
  if (!sink) return fail(sink.error());
  sink_ = *sink;
  payload_have_ = 0;
  staged_ = sink_.to == frame_sink::kind::memory && header_.payload_bytes >= staged_from;
  landed_ = {};
  left_over_ = 0;
  in_payload_ = true;
  if (sink_.to == frame_sink::kind::control) {
    if (header_.payload_bytes > control_payload_max) return fail(ec::internal, "control frame too long");
    control_.resize(header_.payload_bytes);
  }
  return header_.payload_bytes == 0 ? end_frame(owner) : result<void>{};
}

result<void> frame_reader::end_frame(tcp_link_owner& owner) {
  in_payload_ = false;
  const bool control = sink_.to == frame_sink::kind::control;
  return owner.on_frame(link_, header_, sink_,
                        control ? std::span<const std::byte>{control_} : std::span<const std::byte>{});
}

void frame_reader::abandon(tcp_link_owner* owner) {
  if (std::exchange(in_payload_, false) && owner) owner->on_abandoned(link_, header_, sink_);
}

}  // namespace mooncaf
