#pragma once
// What every node is sending: a fetch waits for what its sender already promised to others.

#include <algorithm>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/node_set.hpp"

namespace mooncaf {

/// Senders as queues of bytes: each is known by the time at which it has sent what it promised. A promise
/// that is not kept (the request was cancelled) passes by itself.
/// @thread  Owned by the conductor; not synchronised.
class transfer_board {
 public:
  explicit transfer_board(transfer_model model) : model_(model) {}

  const transfer_model& model() const noexcept { return model_; }

  /// Until `sender` could begin with something new.
  duration wait(node_index sender, time_point now) const noexcept {
    if (sender >= busy_until_.size()) return {};
    return std::max(busy_until_[sender] - now, duration{});
  }
  void charge(node_index sender, std::uint64_t bytes, time_point now) {
    if (sender >= busy_until_.size()) busy_until_.resize(std::size_t{sender} + 1);
    auto& until = busy_until_[sender];
    until = std::max(until, now) + bounded_duration(static_cast<double>(bytes) / model_.bytes_per_s);
  }
  /// A node left; its number may be given out again.
  void forget(node_index sender) noexcept {
    if (sender < busy_until_.size()) busy_until_[sender] = time_point{};
  }
  /// A transfer was measured: bandwidth moves towards it. Small ones tell of latency and are ignored.
  void observe(std::uint64_t bytes, duration took) noexcept {
    constexpr std::uint64_t telling = 1 << 20;
    if (bytes < telling || took <= model_.latency) return;
    const double rate = static_cast<double>(bytes) / to_seconds(took - model_.latency);
    model_.bytes_per_s += 0.05 * (std::min(rate, 4 * model_.bytes_per_s) - model_.bytes_per_s);
  }

 private:
  transfer_model model_;
  std::vector<time_point> busy_until_;  // by node
};

}  // namespace mooncaf
