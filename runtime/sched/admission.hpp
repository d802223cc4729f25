#pragma once
// Whether a request that could be placed should be: one that would miss its SLO anyway is refused early.

#include <cstdint>
#include <limits>
#include <optional>

#include "runtime/sched/admission_policy.hpp"
#include "runtime/sched/decode_pool.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/placement.hpp"

namespace mooncaf {

constexpr bool predicts_each(admission_policy p) noexcept {
  return p == admission_policy::per_request || p == admission_policy::priced;
}

/// Whether admission learns from the TBT that requests had.
constexpr bool learns_tbt(admission_policy p) noexcept {
  return predicts_each(p) || p == admission_policy::queue || p == admission_policy::adaptive;
}

/// Whether the decode side looks again when the KV is there.
constexpr bool checks_at_decode(admission_policy p) noexcept {
  return p != admission_policy::none && p != admission_policy::queue;
}

/// How much of an SLO a class may fill before it is refused: high 1.25, normal 1, low 0.75 and less. When
/// load rises, low-priority requests are refused first, and leave their room to the higher classes.
constexpr double slo_share(std::uint8_t priority) noexcept {
  return priority == 0 ? 1.25 : priority == 1 ? 1.0 : 0.75;
}

/// … and how much of a decode instance's memory. There is no more than all of it.
constexpr double memory_share(std::uint8_t priority) noexcept {
  return priority == 0 ? 1.0 : priority == 1 ? 0.98 : 0.75;
}

/// Facts and predictions about a request that is about to be placed.
struct admission_question {
  std::uint8_t priority = 1;
  duration ttft{};  ///< predicted, since arrival
  duration ttft_slo{};
  duration tbt_now{};      ///< predicted for the chosen decode instance as it is charged now
  duration tbt_running{};  ///< … with the requests that decode there now
  duration tbt_then{};     ///< predicted mean of the decode pool when the prefill ends
  duration tbt_slo{};
  bool decode_saturated = false;
  double tbt_room = 1;   ///< `queue`: share of what the TBT SLO leaves that may be taken
  duration tbt_alone{};  ///< … predicted for a batch of this request alone
  /// No other request is charged to the instance: it is as fast as it gets, and an estimate that is wrong
  /// would refuse for ever.
  bool try_prefill = false, try_decode = false;
  double memory = 0;        ///< tokens that others are predicted to hold of the decode instance's memory
  double memory_needs = 0;  ///< … that this request will hold
  std::uint64_t memory_limit = 0;         ///< all that there is; 0: not known, and never the reason
  duration decode_span{};                 ///< t_d
  duration cost{};                        ///< priced: of its prefill
  duration cost_limit = duration::max();  ///< … the largest that is taken with queues as they are
  double decode_cost = 0;                 ///< priced: of its decoding, and the largest that is taken
  double decode_cost_limit = std::numeric_limits<double>::infinity();
};

/// @returns why the request is refused under `policy`, with the stage and the time after which another try
/// makes sense; nothing if it is admitted.
/// @source  Mooncake (arXiv 2407.00079), section 7.
std::optional<rejection> check_admission(admission_policy policy, const admission_question& q);

/// Whether the instance has memory for the request of `q`. Without others it takes any that it can hold.
bool fits_memory(const admission_question& q) noexcept;

/// The decode side's own check once the KV is there: baseline admission decides only now, the others look
/// again.
/// @param batch, context_tokens  of the running batch without this request.
/// @returns why it should not join, or nothing.
std::optional<rejection> admit_at_decode(const decode_model& model, std::uint64_t batch,
                                         std::uint64_t context_tokens, std::uint64_t request_tokens,
                                         duration tbt_slo, std::uint8_t priority);

}  // namespace mooncaf
