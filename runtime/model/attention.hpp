#pragma once
// The attention part of a layer, over KV blocks: keys and values are written first, so that they can leave while the
// rest of the layer is computed.

#include <memory>
#include <span>

#include "gpu/device.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/model/pass_plan.hpp"
#include "runtime/model/pass_tools.hpp"

namespace mooncaf {

/// Of one runner, on the thread of its pass. For each layer `enter`, `write`, and then for all rows `attend`, or
/// `queries` and `attend` for some of them.
class attention {
 public:
  /// For the model's family. @param blocks  of the blocks that the device computes in. @param plan  of the pass at hand.
  /// Both outlive the attention.
  static std::unique_ptr<attention> make(const pass_tools& tools, const kv_layout& blocks,
                                         const pass_plan& plan);
  virtual ~attention() = default;

  /// Keys and values of the plan's rows, and their queries if those are wanted. @param h  the normed input, [rows, dim]
  virtual void enter(const layer_weights& w, tensor h, bool queries) = 0;
  /// Queries of some rows. @param h  their normed input, [rows, dim]
  virtual void queries(const layer_weights& w, tensor h) = 0;
  /// Finishes the keys of the plan's rows. @param kept  whether this rank writes them and the values to the blocks.
  virtual void write(std::uint32_t layer, bool kept) = 0;
  /// Finishes the queries, attends over the blocks, and writes the output projection to `projected`, [rows, dim].
  virtual void attend(std::uint32_t layer, std::span<const attention_seq> seqs,
                      std::span<const std::int32_t> positions, tensor projected) = 0;

 protected:
  attention(const pass_tools& tools, const kv_layout& blocks, const pass_plan& plan)
      : tools_(tools), blocks_(blocks), plan_(plan) {}
  /// The output projection of what all ranks' heads have attended to, of which `attended` has this rank's.
  void project(const layer_weights& w, tensor attended, tensor projected);

  pass_tools tools_;
  const kv_layout& blocks_;
  const pass_plan& plan_;
};

}  // namespace mooncaf
