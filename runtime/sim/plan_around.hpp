#pragma once
// What lies around a plan: other splits and ways of working, what every part is worth, other loads.

#include <array>

#include "runtime/sim/planner.hpp"

namespace mooncaf::sim {

/// The relative error that is allowed for clusters that are not recommended.
inline constexpr double rough = 0.1;
inline constexpr std::array admissions_to_compare{admission_policy::none, admission_policy::queue,
                                                  admission_policy::early, admission_policy::priced};

/// Fills in `around`, `worth`, `cliff` and `sizes`; the rest of `a` is there.
void look_around(plan_judge& judge, plan_answer& a);
/// About how many runs that and the risks take.
std::uint64_t expected_around(const plan_judge& judge, const plan_cluster& c);

/// The price of a million tokens on `c` at a load of the answer's trace; 0 if the load is.
double price_at(const plan_problem& problem, const plan_answer& a, const plan_cluster& c, double load);

}  // namespace mooncaf::sim
