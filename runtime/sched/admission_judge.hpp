#pragma once
// Whether a request that has been given a place may keep it: predicts its wait, its decoding and its memory,
// and learns how wrong such predictions are.

#include <cstdint>
#include <optional>

#include "runtime/sched/admission.hpp"
#include "runtime/sched/admission_rule.hpp"
#include "runtime/sched/broken_links.hpp"
#include "runtime/sched/cluster_state.hpp"
#include "runtime/sched/conductor_options.hpp"
#include "runtime/sched/learned_margin.hpp"
#include "runtime/sched/placement.hpp"
#include "runtime/sched/policy.hpp"
#include "runtime/sched/price_book.hpp"
#include "runtime/sched/transfer_board.hpp"
#include "runtime/sched/work_rate.hpp"

namespace mooncaf {

/// The conductor's knowledge at a decision.
struct conductor_view {
  const conductor_options& options;
  const cluster_state& cluster;
  const transfer_board& transfers;
  const broken_links& broken;
  const admission_rule& rule;  ///< in force
};

/// A request on its way to a decision, with the class of its answer.
struct placement_candidate {
  const conductor_view& in;
  const schedule_request& request;
  prefill_choice prefill;
  decode_choice decode;
  std::size_t answer = 0;  ///< `answer_class`
  time_point now;
  duration step{};      ///< predicted for its decoding (`predicts_each`), without a margin
  double tbt_room = 1;  ///< admission `queue`: share of what the TBT SLO leaves that may be taken
};

/// Highest priority: such work goes before all other.
inline bool is_urgent(const schedule_request& request) noexcept { return request.priority == 0; }

/// Time since the request came to its gateway.
inline duration waited_by(const schedule_request& request, time_point now) noexcept {
  return request.arrival == time_point{} ? duration{} : std::max<duration>(now - request.arrival, duration{});
}

/// @thread  Owned by the conductor; not synchronised.
class admission_judge {
 public:
  explicit admission_judge(const conductor_options& options);

  /// Takes another decode instance, if the memory of the chosen one will be full and that one's will not.
  void find_room(placement_candidate& c) const;
  /// Takes another decode instance, if the KV would wait long on its way to the chosen one and less to that
  /// one.
  void find_link(placement_candidate& c) const;
  /// @returns why the request is refused, or has to wait; nothing: it keeps its place.
  std::optional<rejection> judge(placement_candidate& c);

  /// KV of this prompt as it would go to decode instance `to`; none if it stays on its node.
  static hand_over kv_of(const placement_candidate& c, instance_slot to);
  /// Tokens of an instance's memory that the request will hold.
  static std::uint64_t memory_needs(const placement_candidate& c, instance_slot slot);

  // ---- forecasts, for a line of waiting requests ----
  /// Seconds of a whole decode instance that its answer is likely to take.
  double decode_work(const placement_candidate& c) const;
  /// Alone on a decode instance it keeps its TBT SLO.
  bool can_keep_tbt(const placement_candidate& c) const;
  /// What a prefill takes from its placement on, as a multiple of the prediction: the median of late.
  double prefill_error() const noexcept { return std::exp(std::clamp(prefill_error_.value(), -1.5, 1.5)); }
  /// … that four of five stay below.
  double prefill_margin() const noexcept { return std::exp(std::clamp(prefill_margin_.value(), -1.5, 1.5)); }

  // ---- admission `adaptive` ----
  /// Another rule is in force.
  void play_by(const admission_rule& rule);
  /// A request came, and would be placed so: its cost is demand, whichever rule decides about it.
  void appraise(const placement_candidate& c);

  // ---- outcomes of placements ----
  void placed(const placement_candidate& c);
  /// @param predicted, took  from arrival to the first token, its own computation not counted.
  void waited(duration predicted, duration took, duration slo) { ttft_margin_.observe(predicted, took, slo); }
  /// @param predicted, took  from its placement to its first token.
  void prefilled(duration predicted, duration took) noexcept;
  /// @param predicted  a step of its decode instance. @param tbt  of the request.
  void decoded(duration predicted, duration tbt, duration slo) { tbt_margin_.observe(predicted, tbt, slo); }

 private:
  duration hand_over_part(const placement_candidate& c, instance_slot slot) const;
  double memory_taken(const placement_candidate& c, instance_slot slot) const;
  bool has_room(const placement_candidate& c, instance_slot slot) const;
  void ask_for_memory(const placement_candidate& c, instance_slot slot, admission_question& q) const;
  void predict_each(placement_candidate& c, admission_question& q);
  void price(const placement_candidate& c, admission_question& q);
  double decode_cost(const placement_candidate& c, const admission_question& q) const;
  duration predicted_ttft(const placement_candidate& c) const;

  work_rate urgent_work_;  ///< prefill that goes before all other
  ttft_margin ttft_margin_;
  tbt_margin tbt_margin_;
  running_quantile prefill_error_{0.5, 0.02, 0}, prefill_margin_{0.8, 0.02, 0};  ///< logarithms
  price_book prefill_prices_;                                                    ///< in seconds of prefill
  price_book decode_prices_;  ///< in shares of a decode instance times seconds
};

}  // namespace mooncaf
