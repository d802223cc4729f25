#pragma once
// Which chunks of which prompts a prefill worker computes next.

#include <cstdint>
#include <limits>
#include <unordered_set>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/urgency.hpp"

namespace mooncaf {

struct prefill_batch_options {
  std::uint32_t chunk_tokens = 512;      ///< of one request in one step, at most; at least 1
  std::uint32_t max_batch_tokens = 512;  ///< of all requests in one step, at most; at least 1
  std::uint32_t block_tokens = 64;       ///< chunks end at multiples of this where they can; at least 1
  duration aging = default_aging;        ///< waiting this long counts as one priority class
  /// Requests in one step, at most; at least 1. Each may end its prompt there and need a row of logits.
  std::uint32_t max_requests = std::numeric_limits<std::uint32_t>::max();
};

/// A prompt that waits to be computed.
struct prefill_entry {
  request_id id;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t start = 0;    ///< tokens that are cached; less than `prompt_tokens`
  std::uint8_t priority = 1;  ///< 0 first
  time_point arrival{};
  time_point deadline = time_point::max();  ///< of the first token; the earliest goes first within a class
};

/// Tokens [start, start + tokens) of a prompt.
struct prefill_chunk {
  request_id id;
  std::uint32_t start = 0;
  std::uint32_t tokens = 0;
};

/// The part of a step's time that counts as computing these tokens of one prompt: the report of a prompt must
/// not contain its neighbours, or the scheduler counts a full step once per prompt in it.
constexpr double part_of_step(double seconds, std::uint64_t tokens, std::uint64_t step_tokens) noexcept {
  return seconds * static_cast<double>(tokens) / static_cast<double>(step_tokens);
}

/// A prefill worker's queue. Steps pack chunks of several requests under a token budget; a request keeps its
/// place until its prompt is computed, every token is handed out exactly once and in order.
///
/// Order: priority class (one better per `aging` waited, so that nothing starves), then deadline, then
/// arrival, then id. A chunk ends at a block's border unless it ends the prompt: a block leaves as a whole.
/// Only the first chunk of a step may end inside a block, when the budget is smaller than a block.
/// @thread  Owned by one worker; not synchronised.  @cost O(waiting) per step.
class prefill_batch {
 public:
  explicit prefill_batch(prefill_batch_options options) : options_(options) {}

  /// @returns false if the id is here already or nothing is left to compute.
  bool push(const prefill_entry& entry);
  /// The chunks of the next step, most urgent first; empty if nothing waits.
  std::vector<prefill_chunk> next(time_point now) { return next(now, options_.max_batch_tokens); }
  /// … under a smaller budget, e.g. the rest that decode leaves of a shared step.
  std::vector<prefill_chunk> next(time_point now, std::uint32_t budget_tokens);
  /// All that is left of the most urgent prompt, alone and whole, whatever the budget.
  std::vector<prefill_chunk> next_prompt(time_point now);
  /// Forgets a request; chunks that were handed out are the caller's business. Unknown ids are ignored.
  void cancel(request_id id);

  std::size_t size() const noexcept { return waiting_.size(); }
  std::uint64_t waiting_tokens() const noexcept { return waiting_tokens_; }

 private:
  bool before(const prefill_entry& a, const prefill_entry& b, time_point now) const;
  std::uint32_t chunk_of(const prefill_entry& entry, std::uint32_t budget, bool first) const;

  prefill_batch_options options_;
  std::vector<prefill_entry> waiting_;  // `start` moves forward as chunks are handed out
  std::unordered_set<request_id> ids_;
  std::uint64_t waiting_tokens_ = 0;
};

}  // namespace mooncaf
