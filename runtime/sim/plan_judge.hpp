#pragma once
// Does a cluster carry a load? Simulates, and remembers.

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/sim/plan_problem.hpp"

namespace mooncaf::sim {

/// What a run says about a cluster.
struct verdict {
  bool holds = false;
  /// Nearly all requests that failed had a late first token / slow tokens. Neither: one cannot say.
  bool short_of_prefill = false, short_of_decode = false;
};

/// Answers by simulation, each question once. A run ends as soon as too many requests have missed their SLOs.
/// @thread  Owned by its caller.
class plan_judge {
 public:
  /// @param records   outlives the judge, as does the problem.
  /// @param progress  called before every run with the number of runs so far and what is tried; may be empty.
  plan_judge(const plan_problem& problem, const std::vector<workload_record>& records,
             std::function<void(std::uint64_t, const plan_cluster&)> progress = {})
      : problem_(problem), records_(records), progress_(std::move(progress)) {}

  /// Under `load` times the trace's traffic the target is met. @param draw  the seed's number, from 0.
  bool holds(const plan_cluster& c, double load, std::uint32_t draw = 0) {
    return try_at(c, load, draw).holds;
  }
  /// … and if not, which role runs short.
  verdict try_at(const plan_cluster& c, double load, std::uint32_t draw = 0);
  /// … with every seed of the problem.
  bool holds_always(const plan_cluster& c, double load);

  /// The largest load at which the target is met, within a factor of `1 + within`; 0 if not even a 64th.
  /// @param guess  where to look first.
  /// @param least   less than this counts as nothing.
  /// @param near    the factor by which the guess is likely to be off at most.
  double capacity(const plan_cluster& c, double guess, double within = 0.02, std::uint32_t draw = 0,
                  double least = 1.0 / 64, double near = 1.1);
  /// `capacity` if it may be above `best`, else nothing is known but that: -1.
  /// @param guess  where to look first if `best` is 0.
  double capacity_above(const plan_cluster& c, double best, double guess, double within = 0.02);

  /// The largest load at which `c` was seen to meet the target; 1 if it never was.
  double known_to_carry(const plan_cluster& c) const;

  std::uint64_t runs() const noexcept { return runs_; }
  const plan_problem& problem() const noexcept { return problem_; }
  const std::vector<workload_record>& records() const noexcept { return records_; }

 private:
  const plan_problem& problem_;
  const std::vector<workload_record>& records_;
  std::function<void(std::uint64_t, const plan_cluster&)> progress_;
  std::map<std::tuple<plan_cluster, double, std::uint32_t>, verdict> known_;
  std::uint64_t runs_ = 0;
};

/// Share of the requests that end inside both SLOs.
double slo_share_of(simulation_options options, const std::vector<workload_record>& records, double load);

/// Does `options` meet the target at this load? A run that cannot is cut short.
verdict try_run(simulation_options options, const std::vector<workload_record>& records, double target,
                double load);
inline bool meets(const simulation_options& options, const std::vector<workload_record>& records,
                  double target, double load) {
  return try_run(options, records, target, load).holds;
}

/// The largest load at which `holds` is true, within a factor of `1 + within`; 0 if not even at `least`.
/// @param holds  true up to some load and false above.
/// @param near   the factor of the first step away from the guess; the next ones grow.
double largest_load(const std::function<bool(double)>& holds, double guess, double within,
                    double least = 1.0 / 64, double near = 1.1);

/// The largest replay speed, within 2 %, at which `options` meet the target; 0 if not even a 64th of it.
inline double capacity(const simulation_options& options, const std::vector<workload_record>& records,
                       double target) {
  return largest_load([&](double load) { return meets(options, records, target, load); }, 1, 0.02);
}

}  // namespace mooncaf::sim
