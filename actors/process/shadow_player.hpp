#pragma once
// Where a conductor's last minutes are played again: on a thread that gives way to all others.

#include <atomic>

#include "runtime/sched/shadow_question.hpp"
#include "runtime/sched/what_if.hpp"

namespace mooncaf {

/// On a clock that runs `time_scale` times faster, modelled devices' own.
shadow_options shadow_at(double time_scale);

/// All rules, and all that else could be different, one after the other. The calling thread has the lowest priority from now on.
/// @pre `q.worth_playing()`. @param stops  the process is to end: what is left is not played.
played_minutes play_beside(const shadow_question& q, const std::atomic<bool>& stops);

}  // namespace mooncaf
