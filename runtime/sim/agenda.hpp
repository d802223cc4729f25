#pragma once
// The virtual clock, and the events to come on it.

#include "runtime/base/units.hpp"
#include "runtime/sim/event_queue.hpp"

namespace mooncaf::sim {

/// Time stands still while an event is dealt with, and jumps to the next one afterwards.
class agenda {
 public:
  ticks now() const noexcept { return now_; }
  time_point clock() const noexcept { return time_point{duration{now_}}; }

  void add(ticks when, event_kind kind, std::uint32_t target, std::uint32_t stamp = 0) {
    events_.push(when, kind, target, stamp);
  }
  bool empty() const noexcept { return events_.empty(); }
  /// When the next event is. @pre not empty; likewise of `take`.
  ticks next_at() const noexcept { return events_.next().at; }
  /// The next event. The clock stays where it is, since an event that turns out void takes no time.
  event take() { return events_.pop(); }
  void advance_to(ticks when) noexcept { now_ = when; }

 private:
  event_queue events_;
  ticks now_ = 0;
};

}  // namespace mooncaf::sim
