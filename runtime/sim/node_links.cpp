#include "runtime/sim/node_links.hpp"

namespace mooncaf::sim {

double node_links::speed(std::uint32_t node) const noexcept {
  return nodes_[node].speed * (node < w_.layout.prefill()
                                   ? w_.options.hardware.nic_bytes_per_s * w_.layout.pipeline()
                                   : w_.options.decode_profile().nic_bytes_per_s);
}

link_path node_links::path(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) const noexcept {
  const auto sending = from_sec(bytes / speed(from)), receiving = from_sec(bytes / speed(to));
  link_path p;
  p.sent = std::max(nodes_[from].sends, begin) + sending;
  p.received = std::max(nodes_[to].receives, begin) + receiving;
  p.latency = from_sec(w_.options.hardware.network_latency_s);
  p.begins = p.ends() - std::max(sending, receiving);
  return p;
}

ticks node_links::transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) {
  const auto p = path(from, to, bytes, begin);
  nodes_[from].worked += from_sec(bytes / speed(from));
  nodes_[from].sends = p.sent;
  nodes_[to].receives = p.received;
  return p.ends();
}

void node_links::take_back(std::uint32_t from, std::uint32_t to, double bytes) {
  const auto now = w_.time.now();
  auto &sender = nodes_[from], &receiver = nodes_[to];
  const auto sending = std::min(from_sec(bytes / speed(from)), std::max<ticks>(sender.sends - now, 0));
  sender.sends -= sending;
  sender.worked -= sending;
  receiver.receives -= std::min(from_sec(bytes / speed(to)), std::max<ticks>(receiver.receives - now, 0));
}

ticks node_links::wait(std::uint32_t from, std::uint32_t to) const noexcept {
  const auto now = w_.time.now();
  return std::max({nodes_[from].sends, nodes_[to].receives, now}) - now;
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
