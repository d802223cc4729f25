#pragma once
// A part of a forward pass: some neighbouring layers of a model, between the stages before and behind it.

#include <atomic>
#include <cstddef>
#include <span>

#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/model/layer_range.hpp"
#include "runtime/model/tensor_part.hpp"

namespace mooncaf {

/// What a stage does of a pass. The spans are the caller's, and left alone by it until `run` returns.
struct stage_work {
  /// As `forward_pass::forward` takes them; blocks begin with the stage's first layer.
  std::span<const batch_item> items;
  /// The residual stream as the stage before left it, [tokens, dim]; empty at the first one, which embeds.
  std::span<const float> from;
  /// Gets the residual stream behind the stage's layers, [tokens, dim]; empty at the last one, which makes
  /// logits. May be the memory of `from`.
  std::span<float> to;
  std::span<float> logits;  ///< see `forward_pass::forward`; at the last stage alone
  layer_done_fn done{};     ///< layers of the model, as `before`
  const std::atomic<bool>* cancel = nullptr;
  before_layer_fn before{};
};

/// One rank of a pipeline group. One thread at a time.
class pass_stage {
 public:
  virtual ~pass_stage() = default;
  /// @error as `forward_pass::forward`. @throws device_failure
  virtual result<void> run(const stage_work& work) = 0;
  virtual layer_range layers() const noexcept = 0;
  /// Its share of each of them, as a rank of a tensor group.
  virtual tensor_part part() const noexcept { return {}; }
  /// Layout of its part of a block: that of its layers alone.
  virtual const kv_layout& layout() const noexcept = 0;
  /// See `forward_pass::chooses`; of the last stage.
  virtual bool chooses() const noexcept = 0;
};

}  // namespace mooncaf
