#pragma once
// The results of a simulation.

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/device_kv_stats.hpp"
#include "runtime/sched/admission_rule.hpp"
#include "runtime/sim/disturbance.hpp"
#include "runtime/sim/elastic.hpp"
#include "runtime/sim/log_histogram.hpp"
#include "runtime/sim/timeline.hpp"

namespace mooncaf::sim {

inline constexpr std::size_t priorities = 3;  ///< high, normal, low

/// Requests of one priority, or of one tenant. Every request ends in exactly one of: completed, failed, a rejection.
struct request_counts {
  std::uint64_t arrived = 0;
  std::uint64_t completed = 0;
  std::uint64_t slo_met = 0;                      ///< of the completed: TTFT and TBT inside both SLOs
  std::uint64_t ttft_missed = 0, tbt_missed = 0;  ///< of the completed; a request may miss both
  std::uint64_t rejected_placement = 0;           ///< no instance could take it, or the queue was full
  std::uint64_t rejected_prefill = 0;             ///< predicted TTFT
  std::uint64_t rejected_decode = 0;              ///< predicted TBT or a full decode pool, before prefill
  std::uint64_t rejected_at_decode = 0;           ///< after prefill
  std::uint64_t rejected_memory = 0;              ///< decode's memory would be full, or never holds it
  std::uint64_t failed =
      0;  ///< given up: machine after machine died with the request, or no instance could take it

  std::uint64_t rejected() const noexcept {
    return rejected_placement + rejected_prefill + rejected_decode + rejected_at_decode + rejected_memory;
  }
  request_counts& operator+=(const request_counts& o) noexcept {
    arrived += o.arrived, completed += o.completed, slo_met += o.slo_met;
    ttft_missed += o.ttft_missed, tbt_missed += o.tbt_missed;
    rejected_placement += o.rejected_placement, rejected_prefill += o.rejected_prefill;
    rejected_decode += o.rejected_decode, rejected_at_decode += o.rejected_at_decode;
    rejected_memory += o.rejected_memory, failed += o.failed;
    return *this;
  }
};

/// Admission `adaptive` went over to another rule.
struct rule_change {
  double at_s = 0;
  admission_rule rule;
};

struct outcome {
  std::array<request_counts, priorities> by_priority;
  std::map<std::uint64_t, request_counts> by_tenant;  ///< of requests that have one
  /// @param owner  the request's tenant; 0: none
  void count(std::uint8_t priority, std::uint64_t owner, const request_counts& what) {
    by_priority[priority] += what;
    if (owner != 0) by_tenant[owner] += what;
  }
  request_counts all() const noexcept {
    request_counts sum;
    for (const auto& c : by_priority) sum += c;
    return sum;
  }

  std::uint64_t judged_met = 0;  ///< inside both SLOs, of the requests that came in the options' span

  // Seconds.
  log_histogram ttft;      ///< of requests that ended prefill
  log_histogram gap;       ///< between tokens of one request, all of them but the hand-over
  log_histogram handover;  ///< from the first token to joining a decode batch
  log_histogram tbt;       ///< per completed request, by the options' metric, hand-over included
  log_histogram pause;     ///< of answers whose machine died: from the last token there to the next one
  log_histogram queueing;  ///< from arrival to the first token, less the own computation

  // Blocks of prompts that could have been reused, by where they were; of placed requests.
  std::uint64_t blocks_dram = 0, blocks_ssd = 0, blocks_remote = 0, blocks_missed = 0;
  std::uint64_t blocks() const noexcept { return blocks_dram + blocks_ssd + blocks_remote + blocks_missed; }
  double hit_share() const noexcept {
    return blocks() == 0 ? 0 : 1 - static_cast<double>(blocks_missed) / static_cast<double>(blocks());
  }

  // Bytes by path.
  double bytes_fetched = 0;   ///< prefixes between nodes
  double bytes_streamed = 0;  ///< prefill to decode
  double bytes_ssd_read = 0, bytes_ssd_written = 0;
  std::uint64_t fetches = 0;
  std::uint64_t fetches_shared = 0;  ///< … from several nodes at once
  std::uint64_t hot_copies = 0;      ///< blocks that were copied ahead of need
  std::uint64_t blocks_evicted = 0;

  /// Of devices with memory of their own (L1), all together; no blocks where there are none.
  device_kv_stats device;

  std::uint64_t prompt_tokens = 0, computed_tokens = 0, output_tokens = 0;
  double prefill_s =
      0;  ///< that prompts took, all together; steps that several shared are divided among them
  double prefill_alone_s = 0;   ///< … that each would have taken alone
  double wasted_prefill_s = 0;  ///< spent on requests that were refused afterwards
  double missed_prefill_s = 0;  ///< spent on requests that completed outside their SLOs

  double began_s = 0;  ///< with the first arrival
  double span_s = 0;   ///< from the first arrival to the last event
  double last_arrival_s = 0;
  double prefill_busy = 0, decode_busy = 0, network_busy = 0;  ///< shares of the span, mean over instances
  // Of decode while requests arrived, sampled: limits besides time.
  double decode_batch = 0;                           ///< sequences over the most that a batch may have, mean
  double decode_memory = 0, decode_memory_most = 0;  ///< KV tokens over a device's room: mean, peak
  double decode_step = 0;                            ///< length of a step over the TBT SLO, mean
  double busiest = 0;                                ///< largest such share of any instance; never above 1
  std::uint64_t peak_live = 0;                       ///< requests under way at once
  std::uint64_t events = 0;

  std::vector<rule_change> rules;
  std::vector<absence> absences;    ///< of instances that were restarted, or died
  std::uint64_t attempts_lost = 0;  ///< requests under way on machines that died, as often as that happened
  std::vector<machine_change> changes;                 ///< of a cluster that grows, shrinks or switches roles
  double prefill_machine_s = 0, decode_machine_s = 0;  ///< paid for; coupled ones count as prefill
  std::uint32_t most_prefill = 0, most_decode = 0;     ///< instances at once, starting ones included
  double lost_prefill_s = 0;  ///< spent on prompts, or for answers, that died with a machine

  timeline history;
  std::uint32_t prefill_instances = 0, decode_instances = 0;

  double slo_share() const noexcept {
    const auto c = all();
    return c.arrived == 0 ? 0 : static_cast<double>(c.slo_met) / static_cast<double>(c.arrived);
  }
  double goodput() const noexcept {  ///< requests a second inside both SLOs, while requests arrived
    return last_arrival_s <= 0 ? 0 : static_cast<double>(all().slo_met) / last_arrival_s;
  }
};

}  // namespace mooncaf::sim
