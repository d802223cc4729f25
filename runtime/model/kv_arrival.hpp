#pragma once
// A request's KV on its way to a device's memory (L1) while it lands in the host's (L2), beside all passes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/device_failure.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/model/device_kv.hpp"

namespace mooncaf {

/// Holds blocks of the device for the prompt of one request, and hands each piece of it to the link as soon
/// as the host's memory has it. Once all is there, the request's first pass finds it under its name and its
/// keys, and loads nothing. Until then these loads alone write to the blocks; blocks that held a part of the
/// prefix already are shared with other requests and are not written at all.
///
///        landed(layer, positions)*          finish             hand_over
///  make ───────────────────────────► loading ───────► loaded ────────────► (the pass's)
///                                       └──── stop, device failure ──► (shared again, as it was found)
///
/// @thread `make`, `loaded`, `hand_over`: any. All else: one thread, which may wait for the device.
class kv_arrival {
 public:
  struct prompt {
    std::uint64_t sequence = 0;      ///< that its passes will have
    std::vector<block_key> keys;     ///< of its leading full blocks
    std::vector<std::byte*> blocks;  ///< in the host's memory, covering `tokens` positions
    std::uint32_t tokens = 0;
  };

  /// @param queue  that nothing else is handed to meanwhile but by the same thread.
  /// @param hold   owners of the device and of the host's blocks, which must outlive the copies.
  /// @returns null if the device has no room for it: then its first pass loads it.
  static std::shared_ptr<kv_arrival> make(std::shared_ptr<device_kv> kv, std::shared_ptr<copy_queue> queue,
                                          prompt what, std::shared_ptr<const void> hold);
  /// Stops: see `stop`.
  ~kv_arrival();
  kv_arrival(const kv_arrival&) = delete;
  kv_arrival& operator=(const kv_arrival&) = delete;

  /// Positions [first, last) of `layer` are in the host's blocks, and will not change. In any order;
  /// positions outside the prompt are ignored.
  void landed(std::uint32_t layer, std::uint32_t first, std::uint32_t last);
  /// … of all layers.
  void landed(std::uint32_t first, std::uint32_t last);
  /// The whole prompt is in the host's blocks: waits until it is on the device. Then `loaded`, unless that
  /// failed.
  void finish();
  /// Waits until no copy is under way, and gives up the blocks.
  void stop();
  /// Why the device cannot be used any more; nothing: it works.
  const std::optional<device_failure>& failure() const noexcept { return failure_; }

  /// All of it is on the device, and no copy is under way.
  bool loaded() const noexcept { return loaded_.load(std::memory_order_acquire); }
  /// Leaves the blocks to the request's first pass. @pre `loaded`.
  void hand_over() { give_back(what_.tokens); }

 private:
  struct layer_state {
    std::uint32_t upto = 0;                        ///< positions before it are on the device, or on their way
    std::map<std::uint32_t, std::uint32_t> ahead;  ///< landed behind a gap: first and last
  };

  kv_arrival(std::shared_ptr<device_kv> kv, std::shared_ptr<copy_queue> queue, prompt what,
             std::shared_ptr<const void> hold);
  void load(std::uint32_t layer, std::uint32_t from, std::uint32_t to);
  void hand_to_link();
  bool wait();
  void give_back(std::uint32_t valid);

  const std::shared_ptr<const void> hold_;  // first, as the members below use it
  const std::shared_ptr<device_kv> kv_;
  const std::shared_ptr<copy_queue> queue_;
  const prompt what_;
  std::atomic<std::uint64_t> ticket_{0};  ///< 0: the blocks are not held any more
  std::uint32_t valid_ = 0;               ///< leading positions that the device had
  std::vector<device_bytes> blocks_;
  std::vector<layer_state> layers_;
  std::vector<kv_copy> copies_;  ///< for the link
  std::size_t copies_bytes_ = 0;
  std::optional<device_failure> failure_;
  std::atomic<bool> loaded_{false};
};

}  // namespace mooncaf
