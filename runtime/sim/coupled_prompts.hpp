#pragma once
// The prompts of a modelled instance that prefills and decodes: which parts of them a step computes.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/sched/prefill_batch.hpp"
#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/device_tier.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/request_table.hpp"

namespace mooncaf::sim {

/// Prompts of requests that have their place in the batch.
///
///   waiting ── choose ──► chunks of the step under way ── settle ──► waiting for the rest, or computed
class coupled_prompts {
 public:
  /// @param costs  outlives the prompts.
  coupled_prompts(const cost_model& costs, const simulation_options& options);

  void push(const request_state_record& r);
  /// Takes the chunks of the next step, if the mode computes any beside so many that decode.
  void choose(ticks now, std::size_t decoding);
  /// Seconds of computing the chunks. @param slowdown  of computing, not of the device's link.
  /// @param tier  of the device, if its memory is its own
  double seconds(const request_table& requests, double slowdown, std::optional<device_tier>& tier);
  /// The step with these chunks takes so long in all, since no answer decodes in it.
  void takes(double seconds) noexcept { working_ = seconds; }
  /// The step is over. @param complete  gets the requests with a computed prompt.
  void settle(request_table& requests, std::vector<std::uint32_t>& complete);
  /// The instance died: nothing is waiting or under way.
  void clear();

  /// Chunks are computed by steps that decode, too.
  bool beside_decoding() const noexcept { return mode_ == coupled_mode::chunked; }
  /// Chunks are under way.
  bool under_way() const noexcept { return !chunks_.empty(); }
  std::size_t waiting() const noexcept { return prompts_.size(); }
  /// Of the chunks under way.
  double working() const noexcept { return working_; }
  ticks busy() const noexcept { return busy_; }

 private:
  const cost_model* costs_;
  prefill_batch_options options_;
  coupled_mode mode_;
  std::uint32_t chunk_;  // tokens of a step
  prefill_batch prompts_;
  std::vector<prefill_chunk> chunks_;     // of the step under way
  std::vector<device_tier::item> items_;  // scratch
  double working_ = 0;                    // seconds of the chunks under way
  ticks busy_ = 0;
};

}  // namespace mooncaf::sim
