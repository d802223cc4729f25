#pragma once
// A modelled prefill instance, or a pipeline group of several nodes: the production queue and its chunks.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/sched/prefill_batch.hpp"
#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/device_tier.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/request_table.hpp"

namespace mooncaf::sim {

/// A step on its way through the stages.
struct prefill_step {
  std::vector<prefill_chunk> chunks;
  ticks began = 0;
  ticks exits = 0;
  ticks stage = 0;           ///< compute of one stage
  double seconds = 0;        ///< … of all together
  std::uint64_t tokens = 0;  ///< of all chunks
};

/// `stages` nodes with a slice of the layers each work on consecutive steps at once: a step takes as long as
/// on one node, but the next one begins when the first stage is free. One long prompt thus runs on all nodes,
/// and a short one pays only for the hops.
///
///   stage 0  ├─c0─┼─c1─┼─c2─┤              began ─► exits: the sum over the stages
///   stage 1       ├─c0─┼─c1─┼─c2─┤         free: after the first
///
/// @source  Mooncake (arXiv 2407.00079), section 5.1, chunked pipeline parallelism.
class prefill_instance {
 public:
  /// @param hop_seconds  from one stage to the next. @param tier  of its device's memory, if it has its own.
  prefill_instance(const cost_model& costs, const prefill_batch_options& options,
                   std::optional<device_tier> tier, std::uint32_t stages, double hop_seconds, double jitter)
      : costs_(&costs),
        tier_(std::move(tier)),
        options_(options),
        queue_(options),
        stages_(stages),
        hop_(from_sec(hop_seconds)),
        jitter_(jitter) {}

  bool push(const prefill_entry& entry) { return queue_.push(entry); }
  /// The rest of the prompt is not wanted any more; chunks under way are computed.
  void cancel(request_id id) { queue_.cancel(id); }
  /// It dies: its queue and the steps under way are gone, and so is the time not worked.
  void crash(ticks now) {
    queue_ = prefill_batch{options_};
    forget_kv();
    steps_.clear();
    last_exit_ = 0;
    busy_ -= taken_ ? std::max<ticks>(free_at_ - now, 0) : 0;
    taken_ = false;
  }

  struct started {
    ticks free = 0;   ///< the first stage can take the next step
    ticks exits = 0;  ///< this one is done
  };
  /// Begins a step if the first stage is free and something waits.
  /// @param slowdown  how much longer it takes than it would alone.
  std::optional<started> start(ticks now, double slowdown, random_source& random,
                               const request_table& requests);
  /// The first stage computes.
  bool computing() const noexcept { return taken_; }
  void first_stage_free() noexcept { taken_ = false; }
  /// The step that leaves the last stage now.
  prefill_step take_exit() {
    auto done = std::move(steps_.front());
    steps_.pop_front();
    return done;
  }

  std::uint32_t stages() const noexcept { return stages_; }
  std::size_t waiting() const noexcept { return queue_.size(); }
  std::uint64_t waiting_tokens() const noexcept { return queue_.waiting_tokens(); }
  /// Time during which the first stage worked, up to now.
  ticks busy() const noexcept { return busy_; }
  const std::optional<device_tier>& tier() const noexcept { return tier_; }
  /// The memory of its device is emptied. @pre no prompt is computed here.
  void forget_kv() {
    if (tier_) tier_->clear();
  }

 private:
  double seconds_of(const std::vector<prefill_chunk>& chunks, double slowdown, const request_table& requests);

  const cost_model* costs_;
  std::optional<device_tier> tier_;
  std::vector<device_tier::item> items_;  // scratch
  prefill_batch_options options_;
  prefill_batch queue_;
  std::uint32_t stages_;
  ticks hop_;
  double jitter_;
  std::deque<prefill_step> steps_;
  ticks last_exit_ = 0;
  ticks free_at_ = 0;  // the first stage, of the step that it computes
  ticks busy_ = 0;
  bool taken_ = false;
};

}  // namespace mooncaf::sim
