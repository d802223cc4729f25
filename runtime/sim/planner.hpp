#pragma once
// Which cluster to buy for a workload, and how far it is from where it fails.

#include <optional>
#include <string>
#include <vector>

#include "runtime/sim/plan_judge.hpp"
#include "runtime/sim/plan_problem.hpp"
#include "runtime/sim/plan_search.hpp"

namespace mooncaf::sim {

/// Share of the answer's load: a cluster that carries less than that is told to carry nothing.
inline constexpr double hardly_any = 0.15;

/// A cluster and how much of the trace's traffic it carries.
struct plan_point {
  plan_cluster cluster;
  double carries =
      0;  ///< times the traffic, with the first seed, within 10 %; 0: not `hardly_any` of the best
};

/// One thing goes wrong.
struct plan_risk {
  std::string what;
  double slo_share = 0;  ///< at the load that is planned for, with the first seed
  double carries = 0;    ///< times the trace's traffic, within 10 %
};

/// An admission policy at a load above the capacity.
struct plan_overload {
  admission_policy admission;
  double slo_share = 0;
};

/// The worth of one part: the same cluster with others of it.
struct plan_worth {
  plan_part part;
  std::vector<plan_point> points;  ///< the chosen one among them
};

/// Of a load, the share of requests that end inside both SLOs.
struct plan_share {
  double load = 0, share = 0;
};

/// The cluster of the same form for another load, or the load of more or fewer machines.
struct plan_size {
  plan_cluster cluster;
  double load = 0;  ///< that it is planned for
  double cost_per_million_tokens = 0;
};

struct plan_answer {
  bool found = false;  ///< nothing else holds where it is not
  plan_cluster cluster;
  std::vector<double> carries;  ///< one per seed, ascending
  double planned_share = 0;     ///< inside both SLOs at the planned load: the least over the seeds
  double planned_load = 0;      ///< times the traffic: stands back from the least of them by the headroom
  double cost_per_hour = 0;
  double cost_per_million_tokens = 0;         ///< of prompts and answers, at the planned load
  double cost_per_million_output_tokens = 0;  ///< of answers, likewise
  std::vector<plan_risk> risks;
  std::vector<plan_point> around;       ///< other splits, ways of working and kinds of machine
  std::vector<plan_worth> worth;        ///< one per part
  std::vector<plan_overload> overload;  ///< at `overload_load`
  double overload_load = 0;
  std::vector<plan_share> cliff;  ///< if the problem wants curves
  std::vector<plan_size> sizes;   ///< if the problem names a load, or wants curves
  double trace_lasts_s = 0;       ///< at the planned load
  std::uint64_t runs = 0;
};

/// The best cluster, how sure that is, and its alternatives.
/// @error of `check_problem`.
result<plan_answer> plan(const plan_problem& problem, const std::vector<workload_record>& records,
                         plan_progress progress = {});

/// The same prompts, longer by a share of their length with text that no other prompt has.
std::vector<workload_record> lengthened(std::vector<workload_record> records, double share,
                                        std::uint32_t block_tokens);

}  // namespace mooncaf::sim
