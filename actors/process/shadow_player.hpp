#pragma once
// Where a conductor's last minutes are played again: on a thread that gives way to all others.

#include <atomic>
#include <vector>

#include "runtime/sched/admission_rule.hpp"
#include "runtime/sched/shadow_question.hpp"

namespace mooncaf {

/// On a clock that runs `time_scale` times faster, modelled devices' own.
shadow_options shadow_at(double time_scale);

/// All rules, one after the other. The calling thread has the lowest priority from now on.
/// @pre `q.worth_playing()`. @param stops  the process is to end: rules that are left are not played.
std::vector<played_rule> play_beside(const shadow_question& q, const std::atomic<bool>& stops);

}  // namespace mooncaf
