#pragma once
// Forward passes by a pipeline group: chunked pipeline parallelism.
//
//            ├ stage 0 ┼ stage 1 ┼ stage 2 ┤
//   pass 0     t = 0       1         2           each pass is called from a thread of its own,
//   pass 1     t = 1       2         3           and begins when the first stage is free
//   pass 2     t = 2       3         4
//
// A long prompt's chunks are passes, so it is computed by all stages at once; a short one takes as long as on
// one device. Numbers do not depend on what shares a pass (gpu/device.hpp): a group of any size gives the bits
// of one device.
//
// @source Mooncake (arXiv 2407.00079), section 5.1.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/turnstile.hpp"
#include "runtime/compute/spare_floats.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/model/pass_stage.hpp"

namespace mooncaf {

/// What the stages of a group have in common.
struct pipeline_shape {
  kv_layout layout;            ///< of whole blocks
  std::size_t vocab_size = 0;  ///< of a row of logits
  std::size_t dim = 0;         ///< of a row of the residual stream
};

/// Owns its stages. A pass runs on its caller's thread, through one stage after the other; callbacks come from
/// there, too.
class pipeline_pass final : public forward_pass {
 public:
  /// @param stages  in order of their layers, which are all of the model's; at least one.
  /// @error `ec::invalid_argument` if they are not, or lay blocks out in another way than the shape's.
  static result<std::unique_ptr<pipeline_pass>> make(std::vector<std::unique_ptr<pass_stage>> stages,
                                                     const pipeline_shape& shape);

  result<void> forward(std::span<const batch_item> items, std::span<float> logits,
                       const layer_done_fn& done = {}, const std::atomic<bool>* cancel = nullptr,
                       const before_layer_fn& before = {}) override;
  bool chooses() const noexcept override { return stages_.back().pass->chooses(); }
  const kv_layout& layout() const noexcept override { return shape_.layout; }
  std::size_t vocab_size() const noexcept override { return shape_.vocab_size; }
  std::uint32_t stages() const noexcept override { return static_cast<std::uint32_t>(stages_.size()); }
  void when_free(std::function<void()> tell) override { free_ = std::move(tell); }

 private:
  struct stage {
    std::unique_ptr<pass_stage> pass;
    std::unique_ptr<turnstile> line = std::make_unique<turnstile>();
  };

  explicit pipeline_pass(const pipeline_shape& shape) : shape_(shape) {}
  result<void> run(std::size_t index, stage_work work, std::span<const batch_item> items) const;

  const pipeline_shape shape_;
  std::vector<stage> stages_;
  std::function<void()> free_;
  spare_floats rows_;  ///< residual streams of passes that have ended
};

}  // namespace mooncaf
