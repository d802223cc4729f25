#pragma once
// The forward pass: tokens in, KV blocks filled, logits out. Chunked prefill, batched decode and mixtures of
// both are one call; which tokens share a call does not change a bit of anyone's result (see gpu/device.hpp).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/work_collector.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/expert_choice.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/model/kv_mirror.hpp"
#include "runtime/model/lora_pass.hpp"
#include "runtime/model/model.hpp"

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
};

/// One per worker; used by one thread at a time. Owns its queue and activation buffers, sized once: on the
/// host device a pass allocates nothing, but for the first that calls `each_row` or `each_hidden`. On a
/// device with memory of its own it computes in blocks there (`kv_mirror`), in several turns if a batch does
/// not fit.
class model_runner final : public forward_pass {
 public:
  /// @error `ec::invalid_argument` if a layout is not this model's, a limit is 0, or the device's KV is
  /// missing; `ec::out_of_space`.
  static result<std::unique_ptr<model_runner>> make(std::shared_ptr<const model> m, device& dev,
                                                    const runner_options& options);
  ~model_runner() override;

  result<void> forward(std::span<const batch_item> items, std::span<float> logits,
                       const layer_done_fn& done = {}, const std::atomic<bool>* cancel = nullptr,
                       const before_layer_fn& before = {}) override;

  bool checks() const noexcept override {
    // Of what the device has in another order than the page it would be of something else.
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
  result<void> check(std::span<const batch_item> items, std::span<float> logits) const;
  std::span<const device_bytes> blocks_of(std::span<const batch_item> items, std::size_t item);
  void plan(std::span<const batch_item> items);
  /// In as many parts as the device's blocks have room for.
  result<void> mirrored(std::span<const batch_item> items, std::span<float> logits, const layer_done_fn& done,
                        const std::atomic<bool>* cancel, const before_layer_fn& before);
  result<void> pass(std::span<const batch_item> items, std::span<float> logits, const layer_done_fn& done,
                    const std::atomic<bool>* cancel, const before_layer_fn& before);
  result<void> run_layers(const layer_done_fn& done, const std::atomic<bool>* cancel,
                          const before_layer_fn& before);
  void run_step();
  void begin_tokens();
  result<void> fetch_layer(std::uint32_t layer, const before_layer_fn& before);
  void tell_stored(std::uint32_t layers, const layer_done_fn& done, bool wait);
  void tell_readers(std::uint32_t layer);
  void run_layer(std::uint32_t layer, const layer_done_fn& done);
  void write_kv(std::uint32_t layer, const layer_done_fn& done);
  void attend(std::uint32_t layer, std::span<const attention_seq> seqs,
              std::span<const std::int32_t> positions, tensor projected);
  void latent_queries(const layer_weights& w, tensor h);
  void finish_latents(const layer_weights& w, tensor k);
  void attend_latents(std::uint32_t layer, std::span<const attention_seq> seqs,
                      std::span<const std::int32_t> positions, tensor projected);
  void feed_forward(const layer_weights& w, tensor x);
  void mix_experts(const layer_weights& w, tensor h, tensor x);
  void through(const ffn_weights& w, tensor h, tensor out);
  void adapt(lora_site site, tensor x, tensor out);
  void join(tensor x, tensor part, const float* post_gain);
  void write_logits(std::span<const batch_item> items, std::span<float> logits);
  void deliver(std::span<const batch_item> items, tensor computed, std::span<float> logits);
  void checksum_blocks(std::span<const batch_item> items);
  void show_rows(const batch_item& item, std::uint32_t begin);

  tensor view(std::size_t offset, std::size_t rows, std::size_t cols) const noexcept;

  std::shared_ptr<const model> model_;
  runner_options options_;
  bool logits_in_place_ = false;  ///< the device writes host memory, so logits need no download
  std::unique_ptr<compute_queue> queue_;
  work_collector* collector_ = nullptr;  ///< the queue, where it can be one
  std::unique_ptr<buffer> memory_;       ///< all activations
  std::unique_ptr<lora_pass> lora_;      ///< null where no item names an adapter
  std::unique_ptr<kv_mirror> mirror_;    ///< null where the device computes in the host's blocks
  /// Offsets into `memory_`, in floats.
  struct {
    std::size_t x = 0;      ///< [tokens, dim], the residual stream
    std::size_t h = 0;      ///< [tokens, max(dim, q_dim)], normalised input; attention's output
    std::size_t q = 0;      ///< [tokens, max(dim, q_dim)], queries, then what is added to the residual stream
    std::size_t k = 0;      ///< [tokens, kv_dim]
    std::size_t v = 0;      ///< [tokens, kv_dim]; not with latent attention
    std::size_t heads = 0;  ///< [tokens, n_heads · max(query_dim, value_dim)], with latent attention
    std::size_t gate = 0;   ///< [ffn tile, widest_ffn]
    std::size_t up = 0;     ///< [ffn tile, widest_ffn]
    std::size_t picked = 0;  ///< [ffn tile, dim], the rows that one expert takes; in a mixture
    std::size_t scores = 0;  ///< [ffn tile, n_experts], the router's; in a mixture
    std::size_t last = 0;    ///< [logit rows, dim], the residual stream of the rows that want logits
    std::size_t logits = 0;  ///< [logit rows, vocab_size], unless logits are written in place
  } at_;

  // The plan of the pass under way; capacity is reserved once.
  std::uint32_t n_tokens_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<device_bytes> blocks_;  ///< of all items, where there is no mirror
  std::vector<attention_seq> seqs_;
  std::vector<std::uint32_t> last_rows_;  ///< row of the last token of each item that wants logits
  std::vector<std::int32_t> last_positions_;
  std::vector<attention_seq> last_seqs_;   ///< the same items with their last token as only query
  std::vector<device_bytes> full_blocks_;  ///< that items want checksums of
  std::vector<std::uint64_t> checksums_;
  std::vector<token_choice> choices_;  ///< of the items that have one, in their order
  std::vector<chosen_token> chosen_;
  bool every_row_ = false;             ///< some item wants more rows than its last
  bool step_ = false;                  ///< every item has one token, and nobody waits for a layer
  std::uint32_t told_ = 0;             ///< layers whose KV somebody was told of
  std::vector<event_ptr> written_;     ///< with a mirror: KV of a layer is in the device's blocks
  std::span<const batch_item> items_;  ///< of the pass
  std::vector<float> scores_;          ///< [ffn tile, n_experts], in a mixture
  expert_choice experts_;
  std::vector<std::uint32_t> each_head_;  ///< 0, 1, … tokens · n_heads, with latent attention
  std::vector<float> shown_;              ///< [show_tile, vocab_size], from the first `each_row` on
  std::vector<float> hidden_;             ///< [show_tile, dim], from the first `each_hidden` on
};

}  // namespace mooncaf
