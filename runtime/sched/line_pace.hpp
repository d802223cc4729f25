#pragma once
// How fast a line of waiting requests moves, and which of them hold it up: learnt from the places that it got.

#include <algorithm>
#include <cmath>

#include "runtime/base/units.hpp"
#include "runtime/sched/cluster_room.hpp"

namespace mooncaf {

/// Work that a request brings: seconds of prefill, and of a whole decode instance.
struct request_work {
  double prefill = 0;
  double decode = 0;
};

/// The time in which a line moves up is the sum over the places that it gives: each takes its prefill times what a second
/// of prefill has cost the line, and likewise of decoding. A role that nobody waits for costs nothing, so the same sum says
/// how much of what is scarce a request takes. No model of the machines is needed: a calibration that is wrong, and
/// noise, come out in what the line has taken.
///
///   line   ├─ waits for prefill ─┤place├─ waits for decode ─┤place├ …      cost of prefill = Σ waits for it / Σ prefill placed
///
/// @thread  Owned by the conductor; not synchronised.
class line_pace {
 public:
  /// @param memory  over about how long it is learnt; > 0.
  explicit line_pace(duration memory) noexcept : memory_(to_seconds(memory)) {}

  /// The line is looked at. @param somebody_waits  since the last look.
  void look(time_point now, bool somebody_waits) noexcept {
    const double passed = to_seconds(now - looked_);
    looked_ = std::max(looked_, now);
    if (!somebody_waits || passed <= 0) return;
    const double kept = std::exp(-passed / memory_);
    prefill_.fade(kept), decode_.fade(kept);
    const double each = passed / ((blocked_.prefill ? 0 : 1) + (blocked_.decode ? 0 : 1));
    if (!blocked_.prefill) prefill_.waited += each;
    if (!blocked_.decode) decode_.waited += each;
  }
  /// What there is no room for, from now on.
  void blocked_by(const cluster_room& room) noexcept { blocked_ = room; }
  /// A waiting request got a place.
  void placed(const request_work& w) noexcept { prefill_.work += w.prefill, decode_.work += w.decode; }
  /// Instances of each role that are live: what is known before anything has been learnt.
  void serve(std::size_t prefill, std::size_t decode) noexcept {
    prefill_.instances = std::max<double>(static_cast<double>(prefill), 1);
    decode_.instances = std::max<double>(static_cast<double>(decode), 1);
  }

  /// Seconds by which the request moves everybody behind it back.
  double cost(const request_work& w) const noexcept {
    return w.prefill * prefill_.each(1) + w.decode * decode_.each(0);
  }

 private:
  static constexpr double guess_s = 5;  // the first guess counts as if it had been seen for so long
  struct role {
    double waited = 0, work = 0, instances = 1;
    void fade(double kept) noexcept { waited *= kept, work *= kept; }
    double each(double guess) const noexcept {
      return (waited + guess * guess_s) / (work + guess_s * instances);
    }
  };
  double memory_;
  role prefill_, decode_;
  cluster_room blocked_{false, false};
  time_point looked_{};
};

}  // namespace mooncaf
