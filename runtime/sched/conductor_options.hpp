#pragma once
// A conductor's settings, fixed from its start.

#include <cstdint>

#include "runtime/sched/admission_policy.hpp"
#include "runtime/sched/elastic_nodes.hpp"
#include "runtime/sched/elastic_roles.hpp"
#include "runtime/sched/placement_policy.hpp"
#include "runtime/sched/request_history.hpp"
#include "runtime/sched/scheduler_defaults.hpp"
#include "runtime/sched/transfer_board.hpp"

namespace mooncaf {

/// Admission `adaptive`: how often which memories are played again.
struct shadow_options {
  bool remembers = false;  ///< what came is remembered under every admission, to be played by the caller
  duration every = defaults::scheduler::shadow_every;
  history_limits memory{};
};

struct conductor_options {
  placement_policy policy = defaults::scheduler::policy;
  admission_policy admission = defaults::scheduler::admission;
  duration ttft_slo = defaults::scheduler::ttft_slo;
  duration tbt_slo = defaults::scheduler::tbt_slo;
  double balancing_threshold = defaults::scheduler::balancing_threshold;  ///< > 1: a remote prefix this many
                                                                          ///< times longer is worth fetching
  duration decode_span =
      defaults::scheduler::predicted_decode;  ///< t_d: how long a request is taken to decode (predictive)
  /// Every node prefills and decodes, a request in one place: the baseline. The router takes the node that
  /// has the least to do, decoding included.
  bool coupled = false;
  std::uint32_t block_tokens = 64;
  std::uint64_t bytes_per_token = 0;  ///< of KV, for transfer times
  std::uint64_t seed = defaults::scheduler::seed;
  duration demand_memory = std::chrono::minutes(1);             ///< over how long demand is averaged; > 0
  double hot_copy_share = defaults::scheduler::hot_copy_share;  ///< of a node's memory that copies of hot
                                                                ///< blocks may take; 0: none are made
  elastic_role_options elastic{};                               ///< coupled nodes play both roles always
  shadow_options shadow{};
  elastic_node_options scale{};                         ///< nobody is asked for nodes
  transfer_model transfer{};                            ///< between nodes, to begin with
  duration heartbeat_limit = std::chrono::seconds(15);  ///< a node silent for longer is lost
  duration charge_limit = std::chrono::hours(1);  ///< a request without a reported end is released after this
  /// Under `queue`, of prompts at an instance behind which a place is given at most; where the TTFT SLO is short, a quarter
  /// of that.
  duration prefill_store = std::chrono::seconds(1);
};

}  // namespace mooncaf
