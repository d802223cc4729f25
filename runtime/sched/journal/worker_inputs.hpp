#pragma once
// What a worker decides by itself about a try that was placed on it, one structure per decision, with all that
// the decision follows from; and what came of it.

#include <optional>
#include <tuple>

#include "runtime/base/ids.hpp"
#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/load_plan.hpp"

namespace mooncaf::journal {

// As in inputs.hpp, but `call` needs nothing besides the members. `one_try` is the id that the conductor's
// journal has for the try.

/// Prefill: which blocks are loaded from where, and which are computed.
struct weigh_load {
  static constexpr const char* name = "weigh_load";
  request_id one_try;
  time_point now;
  load_question question;
  model_state computing;
  load_plan call() const { return plan_load(question, prefill_model{computing}); }
};
/// Prefill: the load ended, or was ended, with so many of its blocks.
struct load_ended {
  static constexpr const char* name = "load_ended";
  request_id one_try;
  time_point now;
  node_id source;  ///< the worker's own node: its disk
  std::uint32_t wanted, got;
  duration took;
  void call() const {}
};
/// Prefill: the prompt is computed.
struct prompt_computed {
  static constexpr const char* name = "prompt_computed";
  request_id one_try;
  std::uint32_t dram_tokens, ssd_tokens, remote_tokens;  ///< that were reused
  std::uint32_t computed_tokens;
  duration waited;  ///< from the job's arrival until the first step
  duration took;    ///< all steps
  void call() const {}
};
/// Decode: whether a try whose prompt has arrived may still join the batch.
struct check_join {
  static constexpr const char* name = "check_join";
  request_id one_try;
  time_point now;
  decode_question question;
  model_state steps;
  std::optional<rejection> call() const { return check_decode(question, decode_model{steps}); }
};

/// Decode: a try that joined is over, whether its answer is complete or not.
struct answer_ended {
  static constexpr const char* name = "answer_ended";
  request_id one_try;
  std::uint32_t tokens;  ///< of the answer until then, the first one included
  duration waited;       ///< from the prompt's arrival until its first step
  duration took;         ///< from then until its last token
  duration longest;      ///< between two of its tokens
  void call() const {}
};

/// In the journal each is known by its place here.
using worker_inputs = std::tuple<weigh_load, load_ended, prompt_computed, check_join, answer_ended>;

/// Whether an input asks neither core nor queue.
template <class In>
concept asks_nobody = requires(const In& in) {
  in.call();
};

}  // namespace mooncaf::journal
