#pragma once
// Which chunks of which prompts a prefill worker computes next.

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace mooncaf {

struct prefill_batch_options {
  std::uint32_t chunk_tokens = 512;      ///< of one request in one step, at most
  std::uint32_t max_batch_tokens = 512;  ///< of all requests in one step, at most
  std::uint32_t block_tokens = 64;       ///< chunks end at multiples of this where they can
  duration aging = std::chrono::seconds(10);  ///< waiting this long counts as one priority class
};

/// A prompt that waits to be computed.
struct prefill_entry {
  request_id id;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t start = 0;               ///< tokens that are cached; less than `prompt_tokens`
  std::uint8_t priority = 1;             ///< 0 first
  time_point arrival{};
  time_point deadline = time_point::max();  ///< of the first token; the earliest goes first within a class
};

/// Tokens [start, start + tokens) of a prompt.
struct prefill_chunk {
  request_id id;
  std::uint32_t start = 0;
  std::uint32_t tokens = 0;
};

/// A prefill worker's queue. Steps pack chunks of several requests under a token budget; a request keeps its place
/// until its prompt is computed, every token is handed out exactly once and in order.
/// @thread  Owned by one worker; not synchronised.  @cost O(waiting) per step.
class prefill_batch {
 public:
  explicit prefill_batch(prefill_batch_options options) : options_(options) {}

  /// @returns false if the id is here already or nothing is left to compute.
  bool push(const prefill_entry& entry);
  /// The chunks of the next step, most urgent first; empty if nothing waits.
  std::vector<prefill_chunk> next(time_point now);
  /// Forgets a request; chunks that were handed out are the caller's business. Unknown ids are ignored.
  void cancel(request_id id);

  std::size_t size() const noexcept { return waiting_.size(); }
  std::uint64_t waiting_tokens() const noexcept { return waiting_tokens_; }

 private:
  std::int64_t urgency_class(const prefill_entry& entry, time_point now) const;

  prefill_batch_options options_;
  std::vector<prefill_entry> waiting_;  ///< `start` moves forward as chunks are handed out
  std::uint64_t waiting_tokens_ = 0;
};

}  // namespace mooncaf
