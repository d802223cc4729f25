#pragma once
// The search for the best cluster, in two stages: the machines first, then their parts and scheduling.

#include <optional>
#include <string>
#include <vector>

#include "runtime/sim/plan_judge.hpp"

namespace mooncaf::sim {

/// The likeliest policy and admission, and the largest parts: excess shows once the machines are known.
plan_cluster first_choice(const plan_problem& p);

/// `c` with the least memory, disk and network of the problem's choices.
plan_cluster with_least_parts(const plan_problem& p, plan_cluster c);

/// Kinds of machine, and how many for which role, with policy, admission and parts as in `first`: the cluster
/// that the goal asks for, by the first seed; the smallest cost or the largest load that any has. Clusters
/// carry more with more machines of either role, the search takes for granted. Where parts have a price, also
/// the best of every other form that with the least of them would be cheaper: it may need less of them.
/// @returns the best first; nothing if no cluster within the limits carries the load.
/// @cost  goodput: about fifteen runs per form. nodes, cost: some twenty runs
///        and one for each cluster cheaper than the answer that nothing before ruled out.
std::vector<plan_cluster> best_machines(plan_judge& judge, const plan_cluster& first);

/// The cluster with one other policy, admission, memory, disk, network at a time, of the problem's choices,
/// and then a machine more or less: whatever the goal likes better is taken, until nothing is. Where cost is
/// asked for, two at a time as well.
/// @cost  one or two short runs for every choice that is no better.
plan_cluster refined(plan_judge& judge, plan_cluster c);

/// Both; where the likeliest policy and admission carry nothing, the others are tried. @returns nothing if no
/// cluster within the limits carries the load.
std::optional<plan_cluster> best_cluster(plan_judge& judge);

/// The cheapest cluster of the same form that carries `load` with every seed, found downhill from a size that
/// does; nothing if even twice as many machines do not.
std::optional<plan_cluster> resized(plan_judge& judge, plan_cluster c, double load, double factor);

/// A thing of which a cluster has one of several.
enum class plan_part : std::uint8_t { policy, admission, cache, ssd, nic };
inline constexpr plan_part all_plan_parts[] = {plan_part::policy, plan_part::admission, plan_part::cache,
                                               plan_part::ssd, plan_part::nic};
/// `c` with each of the problem's other choices of that.
std::vector<plan_cluster> with_other(const plan_problem& p, const plan_cluster& c, plan_part part);

}  // namespace mooncaf::sim
