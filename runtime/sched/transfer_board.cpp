#include "runtime/sched/transfer_board.hpp"

namespace mooncaf {

transfer_model transfer_board::sent_by(node_index from) const noexcept {
  auto model = assumed_;
  if (from >= nodes_.size()) return model;
  const auto& n = nodes_[from];
  if (n.ssd_bytes_per_s > 0) model.ssd_bytes_per_s = n.ssd_bytes_per_s;
  if (n.mean.bytes_per_s > 0) {
    model.bytes_per_s = n.mean.bytes_per_s;
    model.latency = n.mean.latency;
  }
  return model;
}

transfer_model transfer_board::link(node_index from, node_index to) const noexcept {
  auto model = sent_by(from);
  if (from >= nodes_.size()) return model;
  const auto& n = nodes_[from];
  const auto peer = std::ranges::find(n.peers, to);
  if (peer == n.peers.end()) return model;
  const auto& pair = n.pairs[static_cast<std::size_t>(peer - n.peers.begin())];
  model.bytes_per_s = pair.bytes_per_s;
  model.latency = pair.latency;
  return model;
}

std::span<const node_index> transfer_board::measured_with(node_index node) const noexcept {
  if (node >= nodes_.size()) return {};
  return nodes_[node].peers;
}

duration transfer_board::read(node_index node, std::uint64_t bytes) const noexcept {
  return sent_by(node).read(bytes);
}

void transfer_board::charge(node_index sender, std::uint64_t bytes, time_point now) {
  const auto rate = sent_by(sender).bytes_per_s;
  auto& until = at(sender).busy_until;
  until = std::max(until, now) + bounded_duration(static_cast<double>(bytes) / rate);
}

void transfer_board::learn(node& here, node_index peer, const speed& measured) {
  constexpr double weight = 0.2;  // of the newest report in the mean
  auto& mean = here.mean;
  if (mean.bytes_per_s == 0) mean = measured;
  mean.bytes_per_s += weight * (measured.bytes_per_s - mean.bytes_per_s);
  mean.latency += duration{static_cast<duration::rep>(weight * (measured.latency - mean.latency).count())};
  auto i = static_cast<std::size_t>(std::ranges::find(here.peers, peer) - here.peers.begin());
  if (i == here.peers.size()) {
    if (i == most_pairs) {
      i = here.oldest;
      here.oldest = (here.oldest + 1) % most_pairs;
      here.peers[i] = peer;
    } else {
      here.peers.push_back(peer);
      here.pairs.emplace_back();
    }
  }
  here.pairs[i] = measured;
}

void transfer_board::link_measured(node_index a, node_index b, double bytes_per_s, duration latency) {
  if (a == b || !(bytes_per_s > 0)) return;
  const speed measured{bytes_per_s, std::max(latency, duration{})};
  learn(at(a), b, measured);
  learn(at(b), a, measured);
}

void transfer_board::disk_measured(node_index node, double bytes_per_s) {
  if (bytes_per_s > 0) at(node).ssd_bytes_per_s = bytes_per_s;
}

void transfer_board::forget(node_index gone) {
  if (gone >= nodes_.size()) return;
  nodes_[gone] = node{};
  for (auto& n : nodes_) {
    const auto peer = std::ranges::find(n.peers, gone);
    if (peer == n.peers.end()) continue;
    n.pairs.erase(n.pairs.begin() + (peer - n.peers.begin()));
    n.peers.erase(peer);
    n.oldest = 0;
  }
}

}  // namespace mooncaf
