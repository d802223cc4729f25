#pragma once
// How full the instances of a role are: what `role_switch` and `autoscaler` are asked with.

#include <algorithm>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// The instances of one role.
struct pool_load {
  double load = 0;  ///< of an instance, mean; 1 is full, and waiting requests count beyond that
  std::uint32_t running = 0;
};

/// A decode instance at work. Steps are predicted.
struct decode_filling {
  double running = 0, waiting = 0;  ///< requests
  double context_tokens = 0;        ///< of the running ones
  double max_batch = 1;
  double memory_tokens = 0;  ///< that its memory holds; 0: not known
  double step_s = 0;         ///< of the running batch
  double empty_step_s = 0;
  double tbt_slo_s = 0;
};

/// The fullest of three shares: places in the batch, memory, time under the TBT SLO.
inline double fullness(const decode_filling& d) {
  const double all = d.running + d.waiting;
  const double memory =
      d.memory_tokens > 0 ? d.context_tokens * all / std::max(d.running, 1.0) / d.memory_tokens : 0;
  const double room = d.tbt_slo_s - d.empty_step_s;
  const double time = room > 0 && d.running > 0 ? (d.step_s - d.empty_step_s) / room : 0;
  return std::max({all / std::max(d.max_batch, 1.0), memory, time});
}

/// A mean over some time, as monitoring tells it: else every prompt that comes would move machines.
class calm_load {
 public:
  /// Takes one more look in, `apart` after the one before, and puts the mean of the last `over` in its place.
  void settle(pool_load& pool, duration apart, duration over) {
    const double fresh = looked_ ? to_seconds(apart) / to_seconds(apart + over) : 1;
    looked_ = true;
    work_ += fresh * (pool.load * pool.running - work_);
    if (pool.running > 0) pool.load = work_ / pool.running;
  }

 private:
  double work_ = 0;  ///< of all instances together, since more of them share it soon
  bool looked_ = false;
};

}  // namespace mooncaf
