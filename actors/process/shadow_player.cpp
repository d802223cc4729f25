#include "actors/process/shadow_player.hpp"

#include <sys/resource.h>

#include "runtime/sched/rule_choice.hpp"
#include "runtime/sim/shadow_play.hpp"

namespace mooncaf {

shadow_options shadow_at(double time_scale) {
  shadow_options o;
  o.every = from_seconds(to_seconds(o.every) / time_scale);
  o.memory.span = from_seconds(to_seconds(o.memory.span) / time_scale);
  return o;
}

played_minutes play_beside(const shadow_question& q, const std::atomic<bool>& stops) {
  constexpr int lowest = 19;
  // On Linux the calling thread's alone. Without the right to it the play runs as all else does.
  (void)setpriority(PRIO_PROCESS, 0, lowest);
  const auto rules = rules_to_play();
  return sim::play_all(q, rules, [&] { return stops.load(); });
}

}  // namespace mooncaf
