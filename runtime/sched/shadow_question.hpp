#pragma once
// What a conductor knows of the last minutes and of its cluster: enough to play them again under other rules
// (runtime/sim/shadow_play.hpp), on another thread.

#include <cstdint>
#include <vector>

#include "runtime/sched/admission_rule.hpp"
#include "runtime/sched/conductor_options.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/request_history.hpp"

namespace mooncaf {

/// Instances of a role are taken to be alike: each as the mean of those that are live.
struct shadow_question {
  conductor_options options;
  admission_rule rule;                 ///< in force
  std::vector<past_request> requests;  ///< by arrival, answers filled in
  std::vector<timing_point> passes;    ///< prefill as it is by now: new tokens, cached tokens
  std::vector<timing_point> steps;     ///< decoding: sequences, context tokens
  double noise = 0;                    ///< relative standard deviation of a pass's time
  std::vector<node_id> prefill;        ///< a node per live instance
  std::uint32_t decode = 0;            ///< live instances
  std::uint32_t max_batch = 1;         ///< of a decode instance
  std::uint64_t decode_tokens = 0;     ///< that its memory holds; 0: not known
  std::uint64_t memory_blocks = 0;     ///< of a prefill node's memory; 0: not known

  /// Of less than some SLOs' time nothing can be learned.
  bool worth_playing() const noexcept {
    return requests.size() >= 32 && !prefill.empty() && decode > 0 &&
           requests.back().arrival - requests.front().arrival > 2 * options.ttft_slo;
  }
};

}  // namespace mooncaf
