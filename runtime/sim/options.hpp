#pragma once
// The simulated cluster, its policies, and how the trace is played.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/defaults.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/intervals.hpp"
#include "runtime/sched/journal/sink.hpp"
#include "runtime/sched/policy.hpp"
#include "runtime/sched/prefetch_policy.hpp"
#include "runtime/sim/disturbance.hpp"
#include "runtime/sim/elastic.hpp"
#include "runtime/sim/profile.hpp"
#include "runtime/sim/step_history.hpp"
#include "storage/eviction.hpp"
#include "storage/write_policy.hpp"

namespace mooncaf::sim {

/// How an instance that prefills and decodes shares its time between the two.
enum class coupled_mode : std::uint8_t {
  off,         ///< prefill and decode instances of their own
  one_by_one,  ///< a waiting prompt is computed at once, alone; decoding stands still meanwhile
  batched,     ///< … all waiting prompts that fit a step together
  chunked,     ///< every step decodes, and fills up with a piece of a prompt
};

struct simulation_options {
  profile hardware;
  std::optional<profile> decode_hardware;  ///< of the decode instances, if they are other machines
  std::vector<std::string>
      assumed;                ///< values of `hardware` that its file does not give: "SECTION.KEY = VALUE"
  std::uint32_t prefill = 8;  ///< instances; each is `pipeline` nodes
  std::uint32_t decode = 8;
  std::uint32_t pipeline = 1;                ///< nodes of a prefill group (CPP)
  coupled_mode coupled = coupled_mode::off;  ///< on: `prefill` + `decode` nodes do both
  std::uint32_t coupled_chunk = 2048;        ///< tokens of a mixed step
  bool local_cache = true;                   ///< false: no prefix is ever reused

  placement_policy policy = defaults::scheduler::policy;
  admission_policy admission = defaults::scheduler::admission;
  std::uint32_t max_queued = defaults::scheduler::max_queued;  ///< admission queue: that wait for a place
  double shadow_every_s =
      to_seconds(defaults::scheduler::shadow_every);  ///< admission adaptive: between plays
  double balancing_threshold = defaults::scheduler::balancing_threshold;
  double ttft_slo_s = to_seconds(defaults::scheduler::ttft_slo);
  double tbt_slo_s = to_seconds(defaults::scheduler::tbt_slo);
  tbt_metric tbt = tbt_metric::slowest_tenth;  ///< of a request, held against its SLO
  double decode_span_s = to_seconds(defaults::scheduler::predicted_decode);  ///< t_d
  double prefill_store_s = to_seconds(conductor_options{}.prefill_store);
  prefetch_options prefetch;  ///< how long a request waits for its prefix
  double hot_copy_share =
      defaults::scheduler::hot_copy_share;  ///< of a node's memory, for copies of hot blocks; 0: none

  eviction_policy eviction = defaults::cache::eviction;
  bool leaf_first = true;
  std::uint32_t copy_age = eviction_options{}.copy_age;  ///< of blocks on other nodes, too
  write_policy write = defaults::cache::write_policy;
  /// Of KV made by a device with memory of its own, where prefill and decode share it; likewise.
  write_policy device_write = defaults::model::device_write_policy;
  std::uint32_t selective_hits = defaults::cache::selective_hits;

  bool layerwise = true;            ///< KV leaves and arrives layer by layer, beside the computation
  std::uint32_t max_tokens = 2048;  ///< that requests ask for: all that a scheduler knows of their answers
  double high_share = 0;            ///< of requests with high, and with low priority
  double low_share = 0;
  double report_interval_s = to_seconds(report_interval);  ///< at which instances report their load

  std::vector<disturbance> disturbances;
  elastic_options elastic;
  hourly_price price;  ///< of a machine of either role, each one of a prefill group

  double speed = 1;   ///< of the replay
  double jitter = 0;  ///< relative standard deviation of step times
  /// Step times as the scheduler is told, over the true ones: a calibration that is wrong.
  double prefill_calibration = 1, decode_calibration = 1;
  std::uint64_t seed = defaults::scheduler::seed;
  std::uint64_t give_up_after = 0;  ///< requests outside their SLOs or rejected: the run ends there; 0: never
  /// Only which requests end inside their SLOs matters: a TBT inside of it may be told as less short than it
  /// is.
  bool verdict_only = false;
  /// How near to the SLOs the predictions of `admission` may come (`admission_rule`).
  double slo_share = 1;
  /// Requests that come in this span count as `judged_met`.
  double judged_from_s = 0, judged_to_s = 0;
  std::vector<std::uint64_t> watch;  ///< hash ids: their replicas are counted over time
  journal::sink journal;         ///< gets what the conductor is told and decides; empty: nothing is written
  journal::sink worker_journal;  ///< … what workers decide

  /// A TBT up to which it need not be exact. Admission learns from no TBT below half of the SLO (`tbt_margin`).
  double tbt_is_fine_s() const noexcept {
    return !verdict_only ? 0 : learns_tbt(admission) ? tbt_slo_s / 2 : tbt_slo_s;
  }
  const profile& decode_profile() const noexcept { return decode_hardware ? *decode_hardware : hardware; }
  /// Machines of all instances.
  std::uint32_t machines() const noexcept {
    return coupled == coupled_mode::off ? prefill * pipeline + decode : prefill + decode;
  }
};

/// @error `ec::invalid_argument` with the name of the wrong option.
result<void> check_options(const simulation_options& options);

}  // namespace mooncaf::sim
