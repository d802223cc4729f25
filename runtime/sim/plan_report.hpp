#pragma once
// A plan as text for people and JSON for machines.

#include <string>

#include "runtime/sim/planner.hpp"

namespace mooncaf::sim {

/// "12 prefill + 4 decode", "16 coupled", with the machines that a group or a pool is made of.
std::string describe(const plan_problem& problem, const plan_cluster& c);

/// @param currency  of prices; empty: machines have none.
std::string to_text(const plan_problem& problem, const plan_answer& answer, const std::string& currency);
/// One JSON object; the same problem and trace give the same bytes.
std::string to_json(const plan_problem& problem, const plan_answer& answer, const std::string& currency);

}  // namespace mooncaf::sim
