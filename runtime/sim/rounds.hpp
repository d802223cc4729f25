#pragma once
// What a live cluster does at intervals: nodes report their loads, and the conductor looks around.

#include <algorithm>
#include <cstdint>

#include "runtime/sim/attempts.hpp"
#include "runtime/sim/cluster.hpp"
#include "runtime/sim/hot_copier.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Where nothing happens for longer than a minute, only the rounds of its last minute are made; and none behind the
/// first minute without a request, when what was hot has cooled down.
class rounds {
 public:
  /// All of these outlive the rounds.
  rounds(world& w, cluster& c, attempts& requests, hot_copier& copier)
      : w_(w), c_(c), requests_(requests), copier_(copier) {}

  /// A request has come, or was placed.
  void wake();
  /// The round expected under this stamp is due.
  void make(std::uint32_t stamp);

 private:
  struct round {
    ticks interval;
    ticks due = 0;
  };
  ticks next() const noexcept { return std::min(looks_.due, reports_.due); }
  void expect(ticks since);
  void look();
  void report();
  void report_machine(std::uint32_t machine);

  world& w_;
  cluster& c_;
  attempts& requests_;
  hot_copier& copier_;
  round looks_{conductor_interval.count()};
  round reports_{from_sec(w_.options.report_interval_s)};
  bool expected_ = false;
  std::uint32_t stamp_ = 0;
  ticks busy_at_ = 0;  // when a request was last seen
};

}  // namespace mooncaf::sim
