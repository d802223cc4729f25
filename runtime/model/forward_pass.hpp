#pragma once
// One forward pass as workers see it: tokens in, KV blocks filled, logits out. `model_runner` computes it;
// `sim::modelled_pass` waits as long as a profile says that a machine would compute.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "gpu/copy_queue.hpp"
#include "gpu/token_choice.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// Called with the logits [vocab_size] of row `row` of an item's tokens, which may be overwritten, in
/// ascending order on the caller's thread.
using row_logits_fn = std::function<void(std::uint32_t row, std::span<float> logits)>;

/// Called with the last hidden state [dim] of row `row`, behind the model's final norm; in the same order.
using row_hidden_fn = std::function<void(std::uint32_t row, std::span<const float> values)>;

class kv_arrival;
class lora_adapter;

/// Takes KV out of a device's own blocks while a pass computes, as a NIC does.
class device_reader {
 public:
  virtual ~device_reader() = default;
  /// Positions [start, start + count) are in `layer` of the device's `blocks`, which cover them from position
  /// 0 on. On the caller's thread of `forward`; the device's turn is not held.
  virtual void on_device(std::uint32_t layer, std::uint32_t start, std::uint32_t count,
                         std::span<const device_bytes> blocks) = 0;
  /// Returns when nothing reads the blocks that `on_device` named any more: another sequence may get them.
  virtual void let_go() = 0;
};

/// One sequence's share of a forward pass.
struct batch_item {
  std::span<const std::int32_t> tokens;  ///< new tokens, at least one
  std::uint32_t start = 0;  ///< position of tokens[0]; blocks hold the positions before it already
  /// KV blocks in host memory, covering start + tokens.size() positions.
  std::span<std::byte* const> blocks;
  bool want_logits = false;  ///< logits of the last token
  row_logits_fn each_row{};  ///< if set, called for each of `tokens` once the layers are done
  /// Positions before `start` that belong to a reused prefix and that this pass is the first to read. Results
  /// do not depend on the number; a modelled machine takes time to gather them.
  std::uint32_t reused = 0;
  /// Names the sequence from pass to pass, so that a device with memory of its own need not load the
  /// positions before `start` again: they have not changed since a pass of this device read or wrote them
  /// under this name. 0: the sequence has no name.
  std::uint64_t sequence = 0;
  /// Keys of the leading full blocks, as far as they are known: a block that the device holds under its key
  /// is not loaded, whichever sequence computed it. May name blocks that `tokens` fill only in part, or not
  /// yet.
  std::span<const block_key> keys{};
  row_hidden_fn each_hidden{};            ///< as `each_row`, and before it
  const lora_adapter* adapter = nullptr;  ///< changes the weights, on the runner's device; null: none
  /// How the device chooses a token from the last token's logits, instead of `want_logits`. The pass fills in
  /// their row. Only where the pass `chooses`.
  const token_choice* choose = nullptr;
  chosen_token* chosen = nullptr;  ///< gets the outcome of `choose`

  /// On a device with memory of its own, the KV of `tokens` need not be in `blocks` behind the pass. If it is
  /// not,
  /// `*written_from` gets the end of the positions; else the first position that the pass wrote: `start`, or
  /// less if KV of earlier passes had not been written.
  bool may_stay = false;
  std::uint32_t* written_from = nullptr;

  /// If not empty, gets the checksums of the blocks that `tokens` fill, in their order, as many as there are.
  /// Only where the pass `checks`; not of a pass that writes others (see `written_from`).
  std::span<std::uint64_t> checksums{};

  /// On a device with memory of its own, is shown the KV of `tokens` there, layer by layer and before
  /// `layer_done_fn` is called. Other devices do not call it. Null: KV is only written to `blocks`.
  device_reader* reader = nullptr;

  /// On a device with memory of its own: the arrival that loaded the positions before `start`, whose blocks
  /// the pass takes over. Null: the pass loads what the device lacks.
  kv_arrival* arrival = nullptr;

  bool needs_logits() const noexcept { return want_logits || choose != nullptr; }
};

/// Called on the caller's thread as soon as the KV of `layer` of all items is in the host's blocks, while the
/// device computes on: KV can leave before the layer is done. The device turn may be held, so hand the work
/// over and return.
using layer_done_fn = std::function<void(std::uint32_t layer)>;

/// Called on the caller's thread before `layer` reads any KV, without a device turn: may wait until the
/// prefix KV of that layer landed, so that loading layer l + 1 overlaps computing layer l. An error ends the
/// pass with that error.
using before_layer_fn = std::function<result<void>(std::uint32_t layer)>;

/// A worker's way to compute. Used by one thread at a time, but for a group's `stages`.
class forward_pass {
 public:
  virtual ~forward_pass() = default;

  /// Runs all layers over all items.
  /// @param logits  row-major [items with want_logits, vocab_size], in item order; host memory.
  /// @param done    see `layer_done_fn`; layers come in ascending order, each once.
  /// @param cancel  read before every layer; once true the pass ends with `ec::cancelled`.
  /// @param before  see `before_layer_fn`.
  /// @returns after everything is computed. After an error the blocks' new positions hold garbage; positions
  ///          before each item's `start` are untouched.
  /// @error `ec::invalid_argument` (token id, block count, row or token limits, context length),
  ///        `ec::cancelled`, or what `before` returned.
  virtual result<void> forward(std::span<const batch_item> items, std::span<float> logits,
                               const layer_done_fn& done = {}, const std::atomic<bool>* cancel = nullptr,
                               const before_layer_fn& before = {}) = 0;

  /// Whether items may have their tokens chosen on the device. Where logits are in the host's memory anyway
  /// it is not worth it.
  virtual bool chooses() const noexcept { return false; }
  /// Whether items may ask for `checksums`, as the device computes them at less cost than the host.
  virtual bool checks() const noexcept { return false; }
  /// Layout of the blocks that passes fill.
  virtual const kv_layout& layout() const noexcept = 0;
  /// Number of logits in a row.
  virtual std::size_t vocab_size() const noexcept = 0;

  /// Passes that are under way at once in a pipeline group, each called from a thread of its own: one may begin
  /// when the one before it has told that it is free. They end in the order in which they began.
  virtual std::uint32_t stages() const noexcept { return 1; }
  /// @param tell  called on a pass's thread, once for each pass, whether it fails or not, when the next may begin.
  /// Only where there are several stages; set before the first pass.
  virtual void when_free(std::function<void()> /*tell*/) {}
};

}  // namespace mooncaf
