#pragma once
// What the parts of a forward pass (attention, feed-forward, results) compute with.

#include "gpu/device.hpp"
#include "runtime/model/lora_pass.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/pass_scratch.hpp"
#include "runtime/model/rank_columns.hpp"

namespace mooncaf {

/// All of it belongs to the runner, and outlives its parts.
struct pass_tools {
  const model& weights;
  compute_queue& queue;
  pass_scratch& scratch;
  rank_columns& ranks;
  lora_pass* lora = nullptr;  ///< null where no item names an adapter

  const model_config& config() const noexcept { return weights.config(); }
  /// out += the rows' adapters' share of the product of x with the matrix at `site`.
  void adapt(lora_site site, tensor x, tensor out) const {
    if (lora != nullptr) lora->add(queue, site, x, out);
  }
};

}  // namespace mooncaf
