#pragma once
// A modelled instance that prefills and decodes: the baseline that disaggregation is compared with.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/sched/decode_batch.hpp"
#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/coupled_prompts.hpp"
#include "runtime/sim/decode_instance.hpp"
#include "runtime/sim/device_tier.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/request_table.hpp"
#include "runtime/sim/step_history.hpp"

namespace mooncaf::sim {

/// A request takes its place in the batch (memory for prompt and answer), then its prompt is computed, then
/// it decodes. The mode sets their order:
///
///   one_by_one, batched   P P d d d d P d d …   prompts first; everybody's next token waits for them
///   chunked               m m m m d d d m m …   every step decodes and has room for a piece of a prompt
///
/// @cost  an event per step while prompts are computed, one per change of the batch otherwise.
class coupled_instance {
 public:
  /// @param costs  outlives the instance. @param tree  of its node, for its device's memory.
  coupled_instance(const cost_model& costs, const simulation_options& options,
                   std::shared_ptr<prefix_tree> tree);

  /// @returns false if it could never fit the memory.
  bool push(const decode_entry& entry, std::uint32_t tokens) {
    auto longest = entry;
    longest.max_tokens = std::max(longest.max_tokens, tokens);
    return batch_.push(longest);
  }
  /// After `push`: see `decode_instance::wake`.
  std::optional<next_turn> wake(ticks now);
  bool is_current(std::uint32_t stamp) const noexcept { return stamp == stamp_; }

  /// First tokens and ends of the latest turn, in order.
  struct news {
    std::vector<std::uint32_t> first_tokens, finished;
  };
  /// The step or run under way is done. `next` follows, once its news have been dealt with.
  void turn(ticks now, request_table& requests, log_histogram& gaps, news& out);
  /// Begins the next step or run. @param slowdown  factor on the time that it takes. @returns its end, if
  /// there is work.
  std::optional<next_turn> next(ticks now, double slowdown, random_source& random,
                                const request_table& requests);
  /// The memory of its device is emptied. @pre no answer decodes here.
  void forget_kv() {
    if (tier_) tier_->clear();
  }
  /// It dies: see `decode_instance::crash`.
  std::vector<torn_answer> crash(ticks now, const request_table& requests, log_histogram& gaps);
  /// A request with a computed prompt has no more to do here (its answer is one token).
  void leave(const request_state_record& r) { batch_.cancel(r.id); }
  /// From now on it decodes. @returns whether its KV stays on the device; else memory has it.
  bool decode(std::uint32_t slot, request_table& requests);

  /// @param before  gaps of its answer made elsewhere.
  double tbt(const request_state_record& r, tbt_metric metric, std::span<const token_gaps::value_type> before,
             double fine) {
    return history_.tbt(r.first_step, r.first_step + r.decode_tokens, -r.stall_before, metric, before, fine);
  }
  /// Of its decoding. A step that carries a prompt says nothing of how long steps take.
  instance_load load() const;
  std::size_t waiting() const noexcept { return batch_.waiting() + prompts_.waiting(); }
  /// A prompt is being computed, or could be.
  bool computes_prompts() const noexcept { return prompts_.waiting() > 0 || prompts_.under_way(); }
  std::size_t running() const noexcept { return members_.size(); }
  std::uint64_t context_tokens() const noexcept { return context_; }
  ticks busy() const noexcept { return busy_; }
  ticks prompts_busy() const noexcept { return prompts_.busy(); }  ///< of it, for prompts
  const std::optional<device_tier>& tier() const noexcept { return tier_; }
  std::optional<device_tier>& tier() noexcept { return tier_; }

 private:
  struct member {
    std::int64_t finish = 0, start = 0;
    std::uint32_t slot = 0;
    device_tier::member place{};  ///< in the device's memory
  };
  void settle_steps(log_histogram& gaps, request_table& requests, news& out);
  std::int64_t oldest_start() const noexcept;
  double run_seconds(std::int64_t steps) const noexcept {
    const auto n = static_cast<double>(steps);
    return n * run_.seconds + run_.growth * n * (n - 1) / 2;
  }

  const cost_model* costs_;
  decode_batch_options batch_options_;
  std::optional<device_tier> tier_;  // prompts and answers share it
  std::uint32_t load_blocks_ = 0;    // that the next decode step waits for
  std::uint32_t max_batch_;
  double jitter_;
  decode_batch batch_;           // requests that have memory, and ones that wait for it
  coupled_prompts prompts_;      // of requests that have it
  std::vector<member> members_;  // decode; a heap: the first to finish in front
  step_history history_;
  step_run run_;
  std::int64_t planned_ = 0;  // decode steps under way: 0 while only prompts are computed
  std::int64_t steps_ = 0;
  double stall_ = 0;  // seconds since the last decode step in which no answer got a token
  std::uint64_t context_ = 0;
  ticks began_ = 0, busy_ = 0;
  std::uint32_t stamp_ = 0;
  bool active_ = false;
};

}  // namespace mooncaf::sim
