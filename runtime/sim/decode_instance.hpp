#pragma once
// A modelled decode instance: the production batch, stepped in runs.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/instance.hpp"
#include "runtime/sim/cost_model.hpp"
#include "runtime/sim/device_tier.hpp"
#include "runtime/sim/log_histogram.hpp"
#include "runtime/sim/options.hpp"
#include "runtime/sim/random.hpp"
#include "runtime/sim/request_table.hpp"
#include "runtime/sim/step_history.hpp"

namespace mooncaf::sim {

/// How much an instance, coupled or not, may decode at once.
decode_batch_options decode_options_of(const simulation_options& o);

/// When an instance wants its next turn; an older turn of another stamp is void.
struct next_turn {
  ticks at = 0;
  std::uint32_t stamp = 0;
};

/// How far a member of a batch had got when its instance died.
struct torn_answer {
  std::uint32_t slot = 0;
  std::uint32_t tokens = 0;  ///< made there
  ticks last = 0;            ///< when the last of them was; 0: there was none
  token_gaps gaps;           ///< between them, the one to the first token included
};

/// Steps are not simulated one by one: with an unchanged batch each takes a little longer than the last, so
/// the time of any number of them is a formula, and one event stands for all until a request joins or ends.
///
///   turn      a request that joins waits for the end of the step under way
///    ├──┬──┬──┬──┬──┬──┬──┤ planned: until the first member has its last token
///                 ▲ wake() ─► the turn moves here
///
/// @cost  two events per request, however long its answer.
class decode_instance {
 public:
  /// @param costs  outlives the instance. @param tier  of its device's memory, if it has its own.
  /// @param jitter  relative standard deviation of a run's step time.
  decode_instance(const cost_model& costs, const decode_batch_options& options,
                  std::optional<device_tier> tier, double jitter)
      : costs_(&costs),
        options_(options),
        batch_(options),
        tier_(std::move(tier)),
        max_batch_(options.max_batch),
        jitter_(jitter) {}

  /// Of the production's double check.
  decode_question question(const decode_entry& entry, duration tbt_slo) const {
    return batch_.question(entry, tbt_slo);
  }
  /// A request with its KV here. @param tokens  that it will generate here; at least 1.
  /// @returns false if it could never fit the memory.
  bool push(const decode_entry& entry, std::uint32_t tokens);
  /// After `push`: @returns the turn at which the new one may join, if it is earlier than the planned one.
  std::optional<next_turn> wake(ticks now);

  /// The speed changes: @returns the turn after the step under way, if it is earlier than the planned one.
  std::optional<next_turn> cut(ticks now);

  /// The planned steps are done. Members that have all their tokens are moved to `finished`, waiting ones
  /// join.
  /// @param slowdown  how much longer the next steps take than they would alone.
  /// @param gaps      gets the time between tokens of every member. @returns the next turn, if there is work.
  std::optional<next_turn> turn(ticks now, double slowdown, random_source& random, request_table& requests,
                                log_histogram& gaps, std::vector<std::uint32_t>& finished);
  bool is_current(std::uint32_t stamp) const noexcept { return stamp == stamp_; }

  /// The instance dies: every turn planned is void, and no request is here any more.
  /// @param gaps  gets the time between tokens that were made. @returns members, with their tokens so far.
  std::vector<torn_answer> crash(ticks now, const request_table& requests, log_histogram& gaps);

  /// TBT of a member in seconds; it took part until now. @param before  gaps of its answer made elsewhere.
  double tbt(const request_state_record& r, double wait, tbt_metric metric,
             std::span<const token_gaps::value_type> before, double fine) {
    return history_.tbt(r.first_step, r.first_step + r.decode_tokens, wait, metric, before, fine);
  }

  /// As its worker would report it.
  instance_load load(ticks now) const;
  /// The step that ended last.
  const timed_step& latest() const noexcept { return latest_; }
  std::size_t running() const noexcept { return batch_.running().size(); }
  std::size_t waiting() const noexcept { return batch_.waiting(); }
  std::uint64_t context_tokens() const noexcept { return context_; }
  ticks busy() const noexcept { return busy_; }
  const std::optional<device_tier>& tier() const noexcept { return tier_; }
  /// The memory of its device is emptied. @pre no answer decodes here.
  void forget_kv() {
    if (tier_) tier_->clear();
  }

 private:
  struct member {
    std::int64_t finish = 0;  ///< number of the step that gives its last token
    std::int64_t start = 0;
    std::uint64_t turn = 0;  ///< among all that joined: answers that end at once are told in this order
    std::uint32_t slot = 0;
    device_tier::member place{};  ///< in the device's memory
  };
  double run_seconds(std::int64_t steps) const noexcept {
    const auto n = static_cast<double>(steps);
    return n * run_.seconds + run_.growth * n * (n - 1) / 2;
  }
  std::int64_t steps_within(double seconds) const noexcept;
  static bool later(const member& a, const member& b) noexcept {
    return a.finish != b.finish ? a.finish > b.finish : a.turn > b.turn;
  }
  timed_step step_of_run(std::int64_t number) const noexcept;
  void count_gaps(log_histogram& gaps) const;
  void retire(request_table& requests, std::vector<std::uint32_t>& finished);
  void join(ticks now, request_table& requests);
  std::optional<next_turn> begin_run(ticks now, double slowdown, random_source& random);
  std::int64_t oldest_start() const noexcept;

  const cost_model* costs_;
  decode_batch_options options_;
  decode_batch batch_;
  std::optional<device_tier> tier_;
  std::uint32_t load_blocks_ = 0;  // that the next step waits for
  std::uint32_t max_batch_;
  double jitter_;
  std::vector<member> members_;  // a heap: the first to finish in front
  step_history history_;
  step_run run_;  // under way, or the last
  std::uint32_t run_batch_ = 0;
  std::uint64_t run_context_ = 0;  // when it began
  timed_step latest_;
  std::int64_t planned_ = 0;  // steps of it; 0: idle
  ticks began_ = 0;
  std::int64_t steps_ = 0;     // done before it
  std::uint64_t context_ = 0;  // tokens of all members at its begin
  std::uint64_t joined_ = 0;   // members so far
  std::uint32_t stamp_ = 0;
  ticks busy_ = 0;
};

}  // namespace mooncaf::sim
