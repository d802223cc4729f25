#pragma once
// The KV of one attempt on its way from a prefill worker to the decode side, layer by layer, while later
// layers and chunks are still being computed.
//
//   compute thread: layer_ready(layer, ...)  ─┐
//   worker actor:   set_target(slots)        ─┼─► data_plane::submit(write, tag = (request, chunk, layer))
//   worker actor:   finish() / stop()        ─┘        │
//   data plane:     completion  ◄───────────────────────┘  ─► on_end(delivered), when nothing is under way
//
// Layers that are ready before the decode side told its slots wait here as a few numbers each; the bytes stay
// in the blocks, which the worker keeps until `on_end`.
//
// Pages that are laid out by token have a layer of a token in one piece of some 100 bytes to some KiB, and
// the next layer right behind it. There layers wait for each other until they are worth a slice.
//
// Where NICs read the device's own memory, a layer leaves from there as soon as it is written (`on_device`),
// for as long as its pass has those blocks. The same rows come to the host's blocks all the same: rows that
// did not get away from the device leave from there.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/compute/direct_pieces.hpp"
#include "runtime/compute/kv_slices.hpp"
#include "runtime/compute/layer_gathering.hpp"
#include "runtime/compute/stream_end.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/request/messages.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

class link_book;

class kv_stream final : public device_reader, public std::enable_shared_from_this<kv_stream> {
 public:
  /// The memory of the device that computes, as NICs know it.
  struct device_source {
    region_id region;
    device_bytes base;                        ///< where it begins
    std::function<bool(node_id)> leads_to;    ///< whether a transfer to that node would try it first
    std::function<void(std::uint64_t)> sent;  ///< is told of bytes that landed, on any thread
  };
  struct source {
    region_id region;                    ///< where the local blocks lie
    std::vector<std::uint64_t> offsets;  ///< region offset of each block of the prompt
    std::uint32_t prompt_tokens = 0;     ///< tokens that will be sent in all
    /// Nothing: no NIC reads there. Not used for pages that are laid out by token.
    std::optional<device_source> device;
  };

  /// @param on_end  called once from any thread: true if all that was to be sent landed and verified, false
  /// if
  ///                something could not be delivered or the stream was stopped. Afterwards no slice is under
  ///                way.
  kv_stream(attempt_id id, const kv_layout& layout, const std::shared_ptr<data_plane>& plane,
            std::shared_ptr<std::atomic<std::uint64_t>> transfer_ids, std::shared_ptr<link_book> links,
            source from, std::function<void(bool delivered)> on_end);

  /// The decode side's slots. Sends all layers that are ready. A second call is ignored.
  void set_target(const kv_target& target);
  /// Positions [from, tokens) are in the blocks in all layers (a reused prefix).
  void prefix_ready(std::uint32_t tokens, std::uint32_t from = 0);
  /// Positions [start, start + count) are written in `layer`.
  void layer_ready(std::uint32_t layer, std::uint32_t start, std::size_t count);
  /// Whether `on_device` is of any use.
  bool reads_device() const noexcept { return from_.device.has_value(); }
  void on_device(std::uint32_t layer, std::uint32_t start, std::uint32_t count,
                 std::span<const device_bytes> blocks) override;
  void let_go() override;
  /// No more calls of the above will come. @returns the number of landings that make the stream complete;
  /// known only when the target is, so the call back comes at once or from `set_target`.
  void finish(std::function<void(std::uint32_t transfers)> on_count);
  /// Sends nothing more and cancels transfers that are under way; `on_end(false)` follows, unless it ended
  /// before.
  void stop();

  /// Once ended: no byte of this stream can be written at the decode side any more. False: that side must
  /// fence us.
  bool fenced() const;

 private:
  void ready(const kv_piece& what);
  void submit(const kv_piece& what, std::unique_lock<std::mutex>& lock);
  /// @param first  no earlier attempt at the same piece had this id.
  void hand_over(transfer order, bool first, std::function<void(const completion&)> ended,
                 std::unique_lock<std::mutex>& lock);
  transfer order_of(const kv_piece& what, const block_place& from, transfer_id id) const;
  block_place in_memory() const noexcept { return {from_.region, from_.offsets, layout_.page()}; }
  /// A piece that did not get away from the device leaves from memory, under its old id: it lands once,
  /// whatever became of the first attempt.
  void again(const kv_piece& what, transfer_id id, std::unique_lock<std::mutex>& lock);
  void completed(const completion& done);
  /// A transfer from the device is over.
  void read(const kv_piece& what, const completion& done);
  /// Calls back if there is news for the owner. Releases the lock meanwhile.
  void settle(std::unique_lock<std::mutex>& lock);

  const attempt_id id_;
  const kv_layout layout_;
  /// Completions keep the stream alive on the data plane's own threads, where the data plane must not die.
  const std::weak_ptr<data_plane> plane_;
  const std::shared_ptr<std::atomic<std::uint64_t>> transfer_ids_;
  const std::shared_ptr<link_book> links_;  ///< learns from every slice
  const source from_;

  mutable std::mutex mutex_;
  std::optional<kv_target> target_;
  std::vector<kv_piece> waiting_;  ///< ready, but the target is not known
  layer_gathering gathering_;
  std::vector<transfer_id> under_way_;
  bool from_device_ = false;  ///< layers leave from the device
  direct_pieces directly_;
  std::condition_variable unread_;  ///< nothing reads the device any more
  bool draining_ = false;  ///< `set_target` is sending the layers that waited; nothing settles meanwhile
  stream_end end_;
};

}  // namespace mooncaf
