#include "runtime/sim/node_links.hpp"

namespace mooncaf::sim {

double node_links::speed(std::uint32_t node) const noexcept {
  return nodes_[node].speed * (node < w_.layout.prefill()
                                   ? w_.options.hardware.nic_bytes_per_s * w_.layout.pipeline()
                                   : w_.options.decode_profile().nic_bytes_per_s);
}

link_path node_links::path(std::span<const link_share> shares, std::uint32_t to, ticks begin) const noexcept {
  link_path p;
  double all = 0;
  ticks longest = 0;
  for (const auto& s : shares) {
    const auto sending = from_sec(s.bytes / speed(s.from));
    p.sent = std::max(p.sent, sends_from(s.from, begin) + sending);
    longest = std::max(longest, sending);
    all += s.bytes;
  }
  const auto receiving = from_sec(all / speed(to));
  p.received = std::max(nodes_[to].receives, begin) + receiving;
  p.latency = from_sec(w_.options.hardware.network_latency_s);
  p.begins = p.ends() - std::max(longest, receiving);
  return p;
}

ticks node_links::transfer(std::span<const link_share> shares, std::uint32_t to, ticks begin) {
  const auto p = path(shares, to, begin);
  for (const auto& s : shares) {
    const auto sending = from_sec(s.bytes / speed(s.from));
    nodes_[s.from].worked += sending;
    nodes_[s.from].sends = sends_from(s.from, begin) + sending;
  }
  nodes_[to].receives = p.received;
  return p.ends();
}

void node_links::take_back(const link_share& unsent, std::uint32_t to) {
  const auto now = w_.time.now();
  auto &sender = nodes_[unsent.from], &receiver = nodes_[to];
  const auto sending =
      std::min(from_sec(unsent.bytes / speed(unsent.from)), std::max<ticks>(sender.sends - now, 0));
  sender.sends -= sending;
  sender.worked -= sending;
  receiver.receives -=
      std::min(from_sec(unsent.bytes / speed(to)), std::max<ticks>(receiver.receives - now, 0));
}

bool node_links::moves(std::uint32_t node) const noexcept {
  return nodes_[node].sends > w_.time.now() || nodes_[node].receives > w_.time.now();
}

block_run node_links::disk(std::uint32_t node, std::uint32_t blocks) const noexcept {
  const double bytes = static_cast<double>(w_.options.hardware.block_bytes()) * blocks;
  const auto begins = std::max(nodes_[node].reads, w_.time.now());
  return {begins, begins + from_sec(bytes / w_.options.hardware.ssd_bytes_per_s), blocks};
}

void node_links::read_disk(std::uint32_t node, std::uint32_t blocks) {
  nodes_[node].reads = disk(node, blocks).ends;
  w_.out.bytes_ssd_read += static_cast<double>(w_.options.hardware.block_bytes()) * blocks;
}

void node_links::crash(std::uint32_t node) {
  auto& n = nodes_[node];
  const auto now = w_.time.now();
  n.worked -= std::max<ticks>(n.sends - now, 0);
  n.sends = n.receives = n.reads = now;
}

}  // namespace mooncaf::sim
