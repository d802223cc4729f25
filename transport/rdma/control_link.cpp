#include "transport/rdma/control_link.hpp"

namespace mooncaf {

void control_link::send(const rdma_control& c) {
  {
    std::lock_guard lock{mutex_};
    queue_.push_back(encode_control(c));
  }
  if (link_) link_->kick();
}

void control_link::close(const error& why) {
  on_control_ = nullptr;
  on_broken_ = nullptr;
  // The link lets go of this object when it reports its death.
  if (const auto link = std::move(link_)) link->kill(why);
}

result<frame_sink> control_link::on_header(tcp_link&, const frame_header& h) {
  if (h.type != frame_type::rdma_control)
    return fail(ec::corrupt, "the peer sent a frame that does not belong on an RDMA link");
  return frame_sink{};
}

result<void> control_link::on_frame(tcp_link& link, const frame_header&, const frame_sink&,
                                    std::span<const std::byte> control) {
  auto c = parse_control(control);
  if (!c) return fail(c.error());
  link.defer([self = shared_from_this(), message = std::move(*c)] {
    if (const auto handler = self->on_control_) handler(message);
  });
  return {};
}

bool control_link::next_frame(tcp_link&, outgoing_frame& out) {
  std::lock_guard lock{mutex_};
  if (queue_.empty()) return false;
  out.own = std::move(queue_.front());
  queue_.pop_front();
  out.payload = out.own.data();
  out.header.type = frame_type::rdma_control;
  out.header.id.value = 1;  // frames have one; these are about no single transfer
  out.header.payload_bytes = static_cast<std::uint32_t>(out.own.size());
  return true;
}

void control_link::on_broken(tcp_link& link, const error& why) {
  closed_by_peer_ = link.closed_by_peer();
  const auto handler = std::move(on_broken_);
  on_control_ = nullptr;
  on_broken_ = nullptr;
  link_.reset();
  if (handler) handler(why);
}

}  // namespace mooncaf
