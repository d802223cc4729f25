#pragma once
// Does a cluster carry a load? Simulates, and remembers.

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/sim/plan_problem.hpp"

namespace mooncaf::sim {

/// The outcome of a cluster's run.
struct verdict {
  bool holds = false;
  /// Nearly all requests that failed had a late first token / slow tokens. Neither: one cannot say.
  bool short_of_prefill = false, short_of_decode = false;
};

/// How far off a guess of a cluster's capacity usually is, as a factor: halved twice it is less than 2 %.
inline constexpr double likely_off = 1.08;

/// Where a search is.
struct plan_step {
  std::string_view doing;      ///< "machines", "policies and parts", …
  std::uint64_t runs = 0;      ///< simulations that have ended
  std::uint64_t expected = 0;  ///< … that there will be, as far as one can say; at least one more than `runs`
};
using plan_progress = std::function<void(const plan_step&, const plan_cluster&)>;

/// Answers by simulation, each question once. A run ends as soon as too many requests have missed their SLOs.
/// @thread  Owned by its caller.
class plan_judge {
 public:
  /// @param records   outlives the judge, as does the problem.
  /// @param progress  called before every run; may be empty.
  plan_judge(const plan_problem& problem, const std::vector<workload_record>& records,
             plan_progress progress = {})
      : problem_(problem), records_(records), progress_(std::move(progress)) {}

  /// The work that begins, and how many runs it and all later work are expected to take.
  void begin(std::string_view doing, std::uint64_t expected) {
    doing_ = doing;
    expected_ = runs_ + expected;
  }

  /// Under `load` times the trace's traffic the target is met. @param draw  the seed's number, from 0.
  bool holds(const plan_cluster& c, double load, std::uint32_t draw = 0) {
    return try_at(c, load, draw).holds;
  }
  /// … and if not, which role runs short.
  verdict try_at(const plan_cluster& c, double load, std::uint32_t draw = 0);
  /// … with every seed of the problem.
  bool holds_always(const plan_cluster& c, double load);

  /// The largest load at which the target is met, within a factor of `1 + within`; 0 if not even a 64th.
  /// Known loads of the cluster are not asked again: loads below one that held hold, loads above one that
  /// failed fail.
  /// @param guess  where to look first.
  /// @param least   less than this counts as nothing.
  /// @param near    the factor by which the guess is likely to be off at most.
  double capacity(const plan_cluster& c, double guess, double within = 0.02, std::uint32_t draw = 0,
                  double least = 1.0 / 64, double near = likely_off);
  /// `capacity` if it may be above `best`, else nothing is known but that: -1.
  /// @param guess  where to look first if `best` is 0.
  double capacity_above(const plan_cluster& c, double best, double guess, double within = 0.02);

  /// The largest load at which `c` was seen to meet the target; 0 if it never was.
  double known_to_carry(const plan_cluster& c, std::uint32_t draw = 0) const;
  /// The smallest load at which `c` was seen to fail; infinity if it never was.
  double known_to_fail(const plan_cluster& c, std::uint32_t draw = 0) const;
  /// The verdict on `c` at the smallest load at which it was seen to fail; empty if it never was.
  verdict just_beyond(const plan_cluster& c) const;
  /// The share inside both SLOs of a run that is not cut short.
  double share(const plan_cluster& c, double load, std::uint32_t draw = 0);
  /// … of other options or requests than the problem's. @param c  for the progress.
  double share(const plan_cluster& c, const simulation_options& options,
               const std::vector<workload_record>& records, double load);
  /// Whether that share meets the target.
  bool meets(const plan_cluster& c, const simulation_options& options,
             const std::vector<workload_record>& records, double load);

  std::uint64_t runs() const noexcept { return runs_; }
  const plan_problem& problem() const noexcept { return problem_; }
  const std::vector<workload_record>& records() const noexcept { return records_; }

 private:
  const plan_problem& problem_;
  const std::vector<workload_record>& records_;
  void count_run(const plan_cluster& c);

  plan_progress progress_;
  std::map<std::tuple<plan_cluster, double, std::uint32_t>, verdict> known_;
  std::uint64_t runs_ = 0, expected_ = 0;
  std::string_view doing_ = "machines";
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
