#pragma once
// Why a request went where it did: its cost everywhere else.

#include <string>
#include <vector>

#include "runtime/sched/conductor_core.hpp"

namespace mooncaf {

/// A prefill instance that a request could have gone to.
struct prefill_candidate {
  worker_id id;
  node_id node;
  duration queue{};    ///< before it
  duration load{};     ///< fetching and reading a prefix
  duration compute{};  ///< the rest of the prompt
  std::uint32_t local_blocks = 0;
  std::uint32_t fetched_blocks = 0;
  node_id source;  ///< of a fetch
  /// How long after its first token the KV would be at each decode instance, in the order of
  /// `explanation::decode`.
  std::vector<duration> hand_over;
  duration ttft() const noexcept { return queue + load + compute; }
};

struct decode_candidate {
  worker_id id;
  node_id node;
  duration cost{};  ///< the predicted step, longer where the batch or the memory is full
  std::uint32_t charged = 0;
};

/// All live instances, the cheapest first; equals in the order in which the policy prefers them.
struct explanation {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t usable_blocks = 0;  ///< full blocks of the prompt that could be reused
  std::vector<prefill_candidate> prefill;
  std::vector<decode_candidate> decode;
};

/// The candidates that `core` would weigh for this request now; changes nothing.
explanation explain(const conductor_core& core, const schedule_request& request, time_point now);

/// A table for each role, the chosen one marked, and which term decided against the next best: of prefill the
/// queue, the prefix or the computation, of decode the step, the hand-over or the memory.
std::string to_text(const explanation& why, const tl::expected<placement, rejection>& answer);

}  // namespace mooncaf
