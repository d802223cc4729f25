#pragma once
// The question to the planner, and its answers: clusters.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/sim/options.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// A machine that can be had.
struct machine_kind {
  std::string name;  ///< as the price list and the command line call it
  profile hardware;
  double node_hour = 1;  ///< price of an hour; 1 where only machines are counted
};

enum class plan_goal : std::uint8_t {
  goodput,  ///< a number of machines is given: which cluster of them carries most
  nodes,    ///< a load is given: which cluster of fewest machines carries it
  cost,     ///< … and which is cheapest
};

/// An hour of the parts that a machine is bought without, where they have prices of their own.
struct hourly_parts {
  double cache_gb = 0;  ///< memory for KV
  double ssd_gb = 0;    ///< disk for KV
  double nic_gbit = 0;  ///< network, of every machine
};

struct plan_problem {
  simulation_options base;          ///< SLOs and everything that is not searched
  std::vector<machine_kind> kinds;  ///< at least one; prefill and decode may take different ones
  std::vector<std::uint32_t> pipelines{1};
  std::vector<std::uint32_t> coupled_chunks{2048, 512, 128};  ///< tokens of a mixed step to choose from
  bool disaggregated = true, coupled = true;  ///< ways of working to choose from; not both false
  std::vector<double> cache_factors{1};       ///< of the profile's memory for KV, to choose from
  std::vector<double> ssd_gb{-1};             ///< of a machine that prefills; below 0: the profile's
  std::vector<double> nic_gbit{-1};           ///< of every machine, each way; below 0: the profile's
  std::vector<placement_policy> policies;     ///< to choose from, the likeliest first; none: the base's
  std::vector<admission_policy> admissions;   ///< likewise
  hourly_parts part_hour;                     ///< price of an hour of such parts
  bool curves = false;  ///< also how the share inside the SLOs falls with the load, and costs of other loads

  plan_goal goal = plan_goal::goodput;
  std::uint32_t nodes = 16;  ///< machines: exactly that many (goodput), at most that many
  double load = 1;           ///< times the trace's traffic that must be carried
  double headroom = 1.25;    ///< times the load that the cluster must still carry
  double target = 0.99;      ///< share of requests that must end inside both SLOs
  std::uint32_t seeds = 3;   ///< draws of the jitter that the answer must hold for
};

/// A configuration of the search.
struct plan_cluster {
  std::uint32_t prefill_kind = 0, decode_kind = 0;  ///< into the problem's kinds
  std::uint32_t prefill = 1;                        ///< instances; of coupled ones: all
  std::uint32_t pipeline = 1;                       ///< machines of a prefill instance
  std::uint32_t decode = 1;                         ///< instances, a machine each; 0: coupled
  std::uint32_t chunk = 0;                          ///< tokens of a mixed step; 0: not coupled
  placement_policy policy = placement_policy::kvcache_centric;
  double cache_factor = 1;
  admission_policy admission = admission_policy::none;
  double ssd_gb = -1, nic_gbit = -1;  ///< below 0: the profile's

  bool coupled() const noexcept { return decode == 0; }
  std::uint32_t machines() const noexcept { return prefill * pipeline + decode; }
  friend auto operator<=>(const plan_cluster&, const plan_cluster&) = default;
};

/// Memory and disk for KV, and network, of a machine of `c` that prefills.
struct plan_parts {
  double cache_gb, ssd_gb, nic_gbit;
};
plan_parts parts_of(const plan_problem& problem, const plan_cluster& c);
/// @returns the options of a run of `c`.
simulation_options options_of(const plan_problem& problem, const plan_cluster& c);
/// The price of an hour of `c`: machines and their parts.
double cost_of(const plan_problem& problem, const plan_cluster& c);

/// `mooncaf plan`'s question in order. @error `ec::invalid_argument` with the mistake.
result<void> check_problem(const plan_problem& problem);

}  // namespace mooncaf::sim
