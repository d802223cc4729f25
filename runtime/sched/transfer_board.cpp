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

void transfer_board::charge(node_index from, node_index to, std::uint64_t bytes, time_point now) {
  at(from).sends.add(now, static_cast<double>(bytes), now, rate(from));
  at(to).receives.add(now, static_cast<double>(bytes), now, rate(to));
}

/// KV that is there already when the computation begins, and KV that it makes: pieces that move one after
/// another as it goes on.
template <class Visit>
void transfer_board::for_each_part(const hand_over& h, Visit&& visit) {
  constexpr duration piece = std::chrono::milliseconds(250);
  const auto parts = std::clamp<std::int64_t>((h.end - h.begin) / piece, 2, 16);
  const auto each = static_cast<double>(h.computed) / static_cast<double>(parts);
  visit(h.begin, static_cast<double>(h.reused) + each);
  for (std::int64_t i = 1; i < parts; ++i) visit(h.begin + (h.end - h.begin) * i / parts, each);
}

duration transfer_board::wait(const hand_over& h) const noexcept {
  if (h.reused + h.computed == 0) return {};  // however much others have to send
  const auto half = h.begin + (h.end - h.begin) / 2;
  const auto behind = [&](node_index n, const byte_queue known::*queue) {
    const auto bytes_per_s = rate(n);
    const auto ends = [&](time_point due, double bytes) {
      const auto before = n < nodes_.size() ? (nodes_[n].*queue).wait(due, bytes_per_s) : duration{};
      return due + before + bounded_duration(bytes / bytes_per_s) - h.end;
    };
    const auto computed = static_cast<double>(h.computed);
    return std::max(ends(h.begin, static_cast<double>(h.reused) + computed), ends(half, computed / 2));
  };
  return std::max({duration{}, behind(h.from, &known::sends), behind(h.to, &known::receives)});
}

void transfer_board::promise(const hand_over& h, time_point now) {
  at(std::max(h.from, h.to));
  for_each_part(h, [&](time_point due, double bytes) {
    nodes_[h.from].sends.add(due, bytes, now, rate(h.from));
    nodes_[h.to].receives.add(due, bytes, now, rate(h.to));
  });
}

void transfer_board::withdraw(const hand_over& h, time_point now) {
  for_each_part(h, [&](time_point due, double bytes) {
    if (h.from < nodes_.size()) nodes_[h.from].sends.remove(due, bytes, now);
    if (h.to < nodes_.size()) nodes_[h.to].receives.remove(due, bytes, now);
  });
}

void transfer_board::hasten(hand_over& h, time_point now) {
  if (h.end <= now || std::max(h.from, h.to) >= nodes_.size()) return;
  double sending = 0, receiving = 0;
  for_each_part(h, [&](time_point due, double bytes) {
    sending += nodes_[h.from].sends.remove(due, bytes, now);
    receiving += nodes_[h.to].receives.remove(due, bytes, now);
  });
  nodes_[h.from].sends.add(now, sending, now, rate(h.from));
  nodes_[h.to].receives.add(now, receiving, now, rate(h.to));
  h.begin = h.end = now;
}

void transfer_board::learn(known& here, node_index peer, const speed& measured) {
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
  nodes_[gone] = known{};
  for (auto& n : nodes_) {
    const auto peer = std::ranges::find(n.peers, gone);
    if (peer == n.peers.end()) continue;
    n.pairs.erase(n.pairs.begin() + (peer - n.peers.begin()));
    n.peers.erase(peer);
    n.oldest = 0;
  }
}

}  // namespace mooncaf
