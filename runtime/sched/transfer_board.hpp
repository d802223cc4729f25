#pragma once
// The cost of transfers between nodes: the links as they were measured, and the bytes that every node sends
// already.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/sched/byte_queue.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/node_set.hpp"

namespace mooncaf {

/// The KV of a prompt on its way from prefill to decode: layer by layer while it is computed.
struct hand_over {
  node_index from = 0, to = 0;
  time_point begin{}, end{};   ///< of the computation, predicted
  std::uint64_t reused = 0;    ///< bytes that are there when it begins
  std::uint64_t computed = 0;  ///< … and that it makes; 0 of both: nothing is handed over
};

/// Two things by node. **Links**: nodes report the speeds of their transfers (`link_book`) and of their disk;
/// an unknown pair costs as much as its sender's other links, and an unknown sender as much as assumed at the
/// start. **Both directions as queues of bytes**: fetches and copies from now on, hand-overs for the time at
/// which their prompts will be computed. A promise that is not kept (the request was cancelled) passes by
/// itself.
/// @thread  Owned by the conductor; not synchronised.
class transfer_board {
 public:
  /// Pairs that are remembered per node; the oldest goes first. A forgotten pair costs as much as one that
  /// was never measured.
  static constexpr std::size_t most_pairs = 64;

  explicit transfer_board(transfer_model assumed) : assumed_(assumed) {}

  /// The cost of a transfer from `from` if its link to the receiver was not measured.
  transfer_model sent_by(node_index from) const noexcept;
  /// … to `to`, in particular.
  transfer_model link(node_index from, node_index to) const noexcept;
  /// Nodes with a measured link with `node`: each may have a price of its own.
  std::span<const node_index> measured_with(node_index node) const noexcept;
  /// Time to read blocks from the node's own disk.
  duration read(node_index node, std::uint64_t bytes) const noexcept;

  /// Until `sender` could begin with something new.
  duration wait(node_index sender, time_point now) const noexcept {
    if (sender >= nodes_.size()) return {};
    return nodes_[sender].sends.wait(now, rate(sender));
  }
  void charge(node_index from, node_index to, std::uint64_t bytes, time_point now);

  /// How long after its computation the last of it will be there, behind the earlier promises of both ends.
  duration wait(const hand_over& h) const noexcept;
  void promise(const hand_over& h, time_point now);
  /// Promised bytes will not be sent then; bytes that are due by now pass by themselves.
  void withdraw(const hand_over& h, time_point now);
  /// A promised prompt was computed before its time: all bytes left of it are on their way by now.
  void hasten(hand_over& h, time_point now);

  /// One end of a link measured it. Rates that are not positive are ignored.
  void link_measured(node_index a, node_index b, double bytes_per_s, duration latency);
  void disk_measured(node_index node, double bytes_per_s);
  /// A node left; its number may be given out again.
  void forget(node_index node);

 private:
  struct speed {
    double bytes_per_s = 0;  // 0: not measured
    duration latency{};
  };
  struct known {
    byte_queue sends, receives;
    double ssd_bytes_per_s = 0;     // 0: not measured
    speed mean;                     // of its links, recent ones count more
    std::vector<node_index> peers;  // `pairs[i]` is the link with `peers[i]`
    std::vector<speed> pairs;
    std::size_t oldest = 0;
  };

  known& at(node_index n) {
    if (n >= nodes_.size()) nodes_.resize(std::size_t{n} + 1);
    return nodes_[n];
  }
  double rate(node_index n) const noexcept { return sent_by(n).bytes_per_s; }
  template <class Visit>
  static void for_each_part(const hand_over& h, Visit&& visit);
  static void learn(known& here, node_index peer, const speed& measured);

  transfer_model assumed_;
  std::vector<known> nodes_;
};

}  // namespace mooncaf
