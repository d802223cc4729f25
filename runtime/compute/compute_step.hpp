#pragma once
// One forward pass of a worker, as a task for its executor: a batch of sequences, each with the tokens to
// add, their blocks, and the use of the outcome.

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/device_failure.hpp"
#include "runtime/compute/blocking_task.hpp"
#include "runtime/compute/kv_stream.hpp"
#include "runtime/compute/prefix_load.hpp"
#include "runtime/compute/spare_floats.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/model/kv_arrival.hpp"
#include "runtime/model/sampler.hpp"

namespace mooncaf {

/// A sequence's share of a step. Inputs are set by the worker actor, outputs read by it after the step; in
/// between they belong to the executor's thread.
struct step_item {
  // Input.
  attempt_id id;
  std::span<const std::int32_t> tokens;  ///< to add; kept alive by `hold`
  std::uint32_t start = 0;               ///< position of tokens[0]
  std::uint32_t reused = 0;              ///< positions before it that were not computed here
  std::span<std::byte* const> blocks;    ///< covering start + tokens.size(); kept alive by `hold`
  /// Of its leading full blocks, where all that they hold is verified; kept alive by `hold`.
  std::span<const block_key> keys;
  const lora_adapter* adapter = nullptr;  ///< null: the model as it is
  std::shared_ptr<const void> hold;       ///< owner of everything that this item points to
  std::shared_ptr<kv_stream> stream;      ///< where new KV goes as layers finish; null: nowhere
  prefix_load_ptr load;  ///< layers of its prefix still come in: each is waited for; null: all is there
  duration patience{};   ///< … so long, or the pass ends as `ec::timed_out`
  std::shared_ptr<sampler> sample;  ///< set if the pass ends with a token to choose
  /// Tokens whose log-probabilities are wanted: targets[i] follows tokens[i]. At most as many. Kept alive by
  /// `hold`.
  std::span<const std::int32_t> targets;
  std::size_t top = 0;  ///< … with so many alternatives
  pooling_kind pooling = pooling_kind::none;
  std::shared_ptr<const std::atomic<bool>> cancelled;
  std::shared_ptr<kv_arrival> arrival;  ///< see `batch_item`
  bool may_stay = false;                ///< only this device needs the KV of `tokens` for now

  chosen_token chosen;  ///< where the pass chooses the token itself, before it becomes `token`

  // Output.
  std::optional<sampled_token> token;
  /// Of `pooling`: the sum of all rows so far, in their order whatever the chunks, or the last one. Goes in
  /// as the chunk before left it.
  std::vector<double> pooled;
  std::vector<sampled_token> scores;  ///< of `targets`
  /// One per full block that this step wrote to memory, ascending: the blocks that it filled, unless they
  /// stay on the device, and with them blocks that had stayed before.
  std::vector<std::uint64_t> checksums;
  std::uint32_t first_block = 0;   ///< index of the first of them in the sequence
  std::uint32_t written_from = 0;  ///< position, see `batch_item`
};

/// The runner of a worker: used by one step at a time, or by as many as a group has stages.
struct engine {
  std::unique_ptr<forward_pass> runner;
  spare_floats logits;  ///< of steps that have ended
};

/// Runs one forward pass, streams KV out layer by layer, samples, and checksums the blocks that became full.
class compute_step final : public blocking_task {
 public:
  compute_step(std::shared_ptr<engine> machine, std::vector<step_item> items);

  void run() override;

  std::vector<step_item>& items() noexcept { return items_; }
  const std::vector<step_item>& items() const noexcept { return items_; }
  /// Why nothing was computed; code none: all was.
  error outcome() const { return outcome_ ? error{} : outcome_.error(); }
  /// Why the worker can compute nothing more; nothing: it can.
  const std::optional<device_failure>& failure() const noexcept { return failure_; }
  duration elapsed() const noexcept { return elapsed_; }

 private:
  static row_logits_fn scorer(step_item& item);
  static row_hidden_fn pooler(step_item& item);
  before_layer_fn waiter();
  result<void> forward(std::span<const batch_item> batch, std::span<float> logits);
  /// Starts to make the masks that are not there yet, in a thread beside the forward pass.
  std::future<void> make_masks();
  std::size_t filled_blocks(const step_item& item) const;
  void finish_item(step_item& item);
  void check_blocks(step_item& item);

  std::shared_ptr<engine> machine_;
  std::vector<step_item> items_;
  result<void> outcome_;
  std::optional<device_failure> failure_;
  duration elapsed_{};
};

}  // namespace mooncaf
