#pragma once
// Which requests a decode worker's next step extends: continuous batching.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/placement.hpp"
#include "runtime/sched/urgency.hpp"

namespace mooncaf {

struct decode_batch_options {
  std::uint32_t max_batch = 32;
  duration aging = default_aging;        ///< waiting this long counts as one priority class
  std::uint64_t max_context_tokens = 0;  ///< of all requests that run, at their longest; 0: no limit
};

/// A request whose KV is complete.
struct decode_entry {
  request_id id;
  std::uint8_t priority = 1;  ///< 0 first
  time_point arrival{};
  std::uint32_t context_tokens = 0;         ///< prompt
  std::uint32_t max_tokens = 0;             ///< that it may still generate; room is kept for all of them
  time_point deadline = time_point::max();  ///< of its next token; the earliest goes first within a class
};

/// A request whose prompt has arrived, and the batch that it would join.
struct decode_question {
  std::uint64_t batch = 0;           ///< requests that run with it
  std::uint64_t context_tokens = 0;  ///< prompts of all that run or wait
  std::uint32_t prompt_tokens = 0;   ///< its own
  std::uint32_t waiting = 0;         ///< requests that wait to join
  bool memory_full = false;          ///< … the first of them for memory
  std::uint8_t priority = 1;
  duration tbt_slo{};
};

/// The double check when the KV has arrived: whether the batch with all that wait, at the predicted step,
/// keeps this request's SLO, and whether another waits for memory already (`ec::out_of_space`). Baseline
/// admission decides only here.
std::optional<rejection> check_decode(const decode_question& q, const decode_model& model);

/// The running batch and the requests that wait to join it. A request that runs stays until it ends: nothing
/// is swapped out, others wait. One that does not fit the memory left holds back all behind it, so that long
/// ones do not starve; one that could never fit is refused by `push`.
/// @thread  Owned by one worker; not synchronised.
class decode_batch {
 public:
  explicit decode_batch(decode_batch_options options) : options_(options) {}

  /// @returns false if the id is here already, or its context at its longest exceeds `max_context_tokens`.
  bool push(const decode_entry& entry);
  /// Moves waiting requests into free places, most urgent first. @returns the ones moved.
  std::vector<request_id> admit(time_point now);
  /// It ended, or its owner withdrew it. Unknown ids are ignored.
  void cancel(request_id id);

  /// Whether this request may join; for `check_decode`.
  decode_question question(const decode_entry& entry, duration tbt_slo) const;

  const std::vector<request_id>& running() const noexcept { return running_; }
  std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  static std::uint64_t longest(const decode_entry& e) noexcept {
    return std::uint64_t{e.context_tokens} + e.max_tokens;
  }
  bool before(const decode_entry& a, const decode_entry& b, time_point now) const;

  decode_batch_options options_;
  std::vector<decode_entry> waiting_;
  std::vector<request_id> running_;
  std::vector<decode_entry> running_entries_;  // parallel to `running_`
  std::uint64_t reserved_tokens_ = 0;          ///< context of the running batch at its longest
};

}  // namespace mooncaf
