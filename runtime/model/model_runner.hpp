#pragma once
// The forward pass: tokens in, KV blocks filled, logits out. Chunked prefill, batched decode and mixtures of
// both are one call; which tokens share a call does not change a bit of anyone's result (see gpu/device.hpp).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/work_collector.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/attention.hpp"
#include "runtime/model/feed_forward.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/model/kv_mirror.hpp"
#include "runtime/model/lora_pass.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/pass_plan.hpp"
#include "runtime/model/pass_results.hpp"
#include "runtime/model/pass_scratch.hpp"
#include "runtime/model/pass_stage.hpp"
#include "runtime/model/rank_columns.hpp"
#include "runtime/model/rank_exchange.hpp"

namespace mooncaf {

struct runner_options {
  std::uint32_t max_batch_tokens = 512;  ///< new tokens of one pass, over all items; >= 1
  std::uint32_t max_logit_rows = 1;      ///< items with want_logits or choose in one pass; >= 1
  kv_layout layout;                      ///< from `model::layout`
  int priority = 0;                      ///< see `device::make_queue`: decode 0, prefill 1
  /// Longest context that is served; 0: the model's.
  std::uint32_t context_tokens = 0;
  /// KV blocks of this layout in the memory of a device that is not the host's, shared by its runners; null
  /// where the device computes in the host's blocks.
  std::shared_ptr<device_kv> device_blocks;
  std::uint32_t lora_rank = 0;  ///< of the adapters that items may name, at most; 0: they name none
  /// To the other ranks of a tensor group, if the model is a share; then `layout` is that of the share's heads, of which
  /// a device with memory of its own has the compact one. All ranks run the same items.
  std::shared_ptr<rank_exchange> exchange;
};

/// One per worker; used by one thread at a time. Owns its queue and activation buffers, sized once: on the
/// host device a pass allocates nothing, but for the first that calls `each_row` or `each_hidden`. On a
/// device with memory of its own it computes in blocks there (`kv_mirror`), in several turns if a batch does
/// not fit.
/// Of a model that has some of its layers alone it is a stage of a group: `run` is its pass, and `forward` refuses.
class model_runner final : public forward_pass, public pass_stage {
 public:
  /// @error `ec::invalid_argument` if a layout is not this model's, a limit is 0, or the device's KV is
  /// missing; `ec::out_of_space`.
  static result<std::unique_ptr<model_runner>> make(std::shared_ptr<const model> m, device& dev,
                                                    const runner_options& options);
  ~model_runner() override;

  result<void> forward(std::span<const batch_item> items, std::span<float> logits,
                       const layer_done_fn& done = {}, const std::atomic<bool>* cancel = nullptr,
                       const before_layer_fn& before = {}) override;
  result<void> run(const stage_work& work) override;
  layer_range layers() const noexcept override { return model_->part(); }
  tensor_part part() const noexcept override { return model_->share(); }

  bool checks() const noexcept override {
    // A page in another order than the device's block has another checksum than the block.
    return mirror_ != nullptr && options_.layout.pages != page_order::page_first &&
           checksum_fits(options_.layout.block_bytes());
  }
  bool chooses() const noexcept override { return !logits_in_place_; }
  const kv_layout& layout() const noexcept override { return options_.layout; }
  std::size_t vocab_size() const noexcept override { return model_->config().vocab_size; }
  const runner_options& options() const noexcept { return options_; }
  const model& model_in_use() const noexcept { return *model_; }

 private:
  model_runner() = default;
  result<void> check(const stage_work& work) const;
  bool writes_blocks() const noexcept;
  std::size_t begin_part(std::span<const batch_item> items);
  /// In as many parts as the device's blocks have room for.
  result<void> in_parts(stage_work work, const result<void>& fine);
  result<void> pass(const stage_work& work);
  result<void> run_layers(const stage_work& work);
  void run_step();
  void begin_tokens(std::span<const float> from);
  result<void> fetch_layer(std::uint32_t layer, const before_layer_fn& before);
  void tell_stored(std::uint32_t layers, const layer_done_fn& done, bool wait);
  void tell_readers(std::uint32_t layer);
  void run_layer(std::uint32_t layer, const layer_done_fn& done);
  void pass_on_kv(std::uint32_t layer, const layer_done_fn& done);

  std::shared_ptr<const model> model_;
  runner_options options_;
  kv_layout blocks_;              ///< of the blocks that the device computes in
  bool logits_in_place_ = false;  ///< the device writes host memory, so logits need no download
  std::unique_ptr<compute_queue> queue_;
  work_collector* collector_ = nullptr;    ///< the queue, where it can be one
  std::unique_ptr<pass_scratch> scratch_;  ///< activations, and what the host keeps of a pass meanwhile
  std::unique_ptr<lora_pass> lora_;        ///< null where no item names an adapter
  std::unique_ptr<kv_mirror> mirror_;      ///< null where the device computes in the host's blocks
  std::optional<rank_columns> ranks_;      ///< set by `make`, as are the parts of the pass
  std::unique_ptr<attention> attention_;
  std::optional<feed_forward> feed_forward_;
  std::optional<pass_results> results_;

  // The pass under way.
  pass_plan plan_;                  ///< its tokens and where their KV lies
  bool step_ = false;               ///< every item has one token, and no caller waits for a layer
  std::uint32_t told_ = 0;          ///< layers of which `layer_done_fn` was called
  std::vector<event_ptr> written_;  ///< with a mirror: KV of a layer is in the device's blocks
};

}  // namespace mooncaf
