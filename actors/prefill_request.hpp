#pragma once
// A prompt at its prefill worker: the inputs of its steps, and the stream of its KV.

#include <atomic>
#include <caf/response_promise.hpp>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/worker_request.hpp"
#include "runtime/compute/compute_step.hpp"
#include "runtime/compute/kv_stream.hpp"
#include "runtime/compute/prefix_load.hpp"
#include "runtime/request/prefill_core.hpp"

namespace mooncaf {

/// @thread  Owned by the prefill worker; an executor reads it during a step.
struct prefill_request : worker_request {
  prefix_load_ptr load;               ///< its prefix, if that comes layer by layer
  std::shared_ptr<kv_stream> stream;  ///< null: none is open
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  std::vector<caf::response_promise> waiting;  ///< cancels to answer

  /// Its share of a step, but for `hold`. @pre the blocks are located.
  step_item item_of(const node_context& context, const prefill_part& part) const;
  /// The outcome of that share.
  prefill_outcome outcome_of(const node_context& context, step_item& item) const;
  /// @param slots   of the prompt's blocks.
  /// @param on_end  as `kv_stream` has it.
  void open_stream(const node_context& context, std::span<const slot_index> slots,
                   std::function<void(bool delivered)> on_end);
  void give_up_load() const;
  /// The worker ends: nothing of it goes on.
  void abandon() const;
  /// Answers the cancels. @param fenced  nothing of it can be written at decode any more.
  void stopped(bool fenced);
};

}  // namespace mooncaf
