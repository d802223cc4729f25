#pragma once
// When an instance should change from prefill to decode, or back.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/base/units.hpp"
#include "runtime/base/worker_role.hpp"
#include "runtime/sched/pool_load.hpp"
#include "runtime/sched/scheduler_defaults.hpp"

namespace mooncaf {

struct role_switch_options {
  double busy = 0.5;  ///< no machine moves while the fuller pool is below this load
  /// By which what gives must stay below what the fuller one was; as the reverse would need as much again, no
  /// machine goes back before loads have changed by twice that.
  double margin = 0.1;
  duration hold = defaults::scheduler::elastic_hold;  ///< for which that must have been so
};

/// An elastic pool: the emptier role gives one instance to the fuller one if it will still be emptier than that
/// one was. One at a time; the caller drains it, and asks again when it works in its new
/// role: while it would still help, another one follows without a new wait.
///
/// A load that turns within a few holds is over before a change has paid: each change back waits twice as long as the
/// change before, until loads have stayed for `calm_holds` of those waits.
/// @thread  Owned by one thread; not synchronised.
class role_switch {
 public:
  explicit role_switch(const role_switch_options& options) : options_(options) {}

  /// How long a need must last now; loads are best means over twice as long.
  duration hold(time_point now) const noexcept {
    return !last_ || now - last_at_ >= calm_holds * hold_ ? options_.hold : hold_;
  }
  /// @returns the role that gives an instance away, or nothing.
  std::optional<worker_role> decide(const pool_load& prefill, const pool_load& decode, time_point now) {
    const bool prefill_gives = prefill.load < decode.load;
    const auto giver = prefill_gives ? worker_role::prefill : worker_role::decode;
    if (!helps(prefill_gives ? prefill : decode, prefill_gives ? decode : prefill)) {
      wanted_.reset();
      return std::nullopt;
    }
    if (wanted_ != giver) {
      wanted_ = giver;
      since_ = now;
    }
    const auto base = hold(now);
    const bool back = last_ && *last_ != giver && now - last_at_ < calm_holds * hold_;
    if (now - since_ < (back ? 2 * base : base)) return std::nullopt;
    hold_ = back ? 2 * base : base;
    last_ = giver;
    last_at_ = now;
    return giver;
  }

 private:
  static constexpr int calm_holds = 6;

  bool helps(const pool_load& gives, const pool_load& takes) const {
    if (gives.running < 2 || takes.load < options_.busy) return false;
    const double n = gives.running;
    return gives.load * n / (n - 1) <= (1 - options_.margin) * takes.load;
  }

  role_switch_options options_;
  std::optional<worker_role> wanted_;
  time_point since_{};
  std::optional<worker_role> last_;  ///< gave an instance away
  time_point last_at_{};
  duration hold_{};  ///< … after so long
};

}  // namespace mooncaf
