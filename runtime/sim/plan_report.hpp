#pragma once
// A plan as text for people and JSON for machines.

#include <string>

#include "runtime/sim/planner.hpp"

namespace mooncaf::sim {

/// "12 prefill + 4 decode", "16 coupled", with the machines that a group or a pool is made of.
std::string describe(const plan_problem& problem, const plan_cluster& c);

/// The choice of `c` for a part: "kvcache_centric", "983 GB of memory".
std::string describe(const plan_problem& problem, const plan_cluster& c, plan_part part);
/// An admission policy under overload; null if that was not asked.
const plan_overload* overload_of(const plan_answer& answer, admission_policy admission);

/// @param currency  of prices; empty: machines have none.
std::string to_text(const plan_problem& problem, const plan_answer& answer, const std::string& currency);
/// The page: first for a manager, then for an engineer. The problem wanted `curves`.
/// @param about  the trace and the question, for the heading.
std::string to_html(const plan_problem& problem, const plan_answer& answer, const std::string& currency,
                    const std::string& about);
/// One JSON object; the same problem and trace give the same bytes.
std::string to_json(const plan_problem& problem, const plan_answer& answer, const std::string& currency);

}  // namespace mooncaf::sim
