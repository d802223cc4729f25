#pragma once
// The KV of one attempt on its way from a prefill worker to the decode side, layer by layer, while later
// layers and chunks are still being computed.
//
//   compute thread: layer_ready(layer, ...)  ─┐
//   worker actor:   set_target(slots)        ─┼─► data_plane::submit(write, tag = (request, chunk, layer))
//   worker actor:   finish() / stop()        ─┘        │
//   data plane:     completion  ◄───────────────────────┘  ─► on_end(delivered) once, when nothing is under
//   way
//
// Layers that are ready before the decode side told its slots wait here as a few numbers each; the bytes stay
// in the blocks, which the worker keeps until `on_end`.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/base/kv_layout.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

class link_book;

class kv_stream : public std::enable_shared_from_this<kv_stream> {
 public:
  struct source {
    region_id region;                    ///< where the local blocks lie
    std::vector<std::uint64_t> offsets;  ///< region offset of each block of the prompt
    std::uint32_t prompt_tokens = 0;     ///< tokens that will be sent in all
  };

  /// @param on_end  called once from any thread: true if everything that was to be sent landed and verified,
  /// false
  ///                if something could not be delivered or the stream was stopped. Afterwards no slice is
  ///                under way.
  kv_stream(attempt_id id, const kv_layout& layout, const std::shared_ptr<data_plane>& plane,
            std::shared_ptr<std::atomic<std::uint64_t>> transfer_ids, std::shared_ptr<link_book> links,
            source from, std::function<void(bool delivered)> on_end);

  /// The decode side's slots. Sends what is ready already. A second call is ignored.
  void set_target(const kv_target& target);
  /// Positions [from, tokens) are in the blocks in all layers (a reused prefix).
  void prefix_ready(std::uint32_t tokens, std::uint32_t from = 0);
  /// Positions [start, start + count) are written in `layer`.
  void layer_ready(std::uint32_t layer, std::uint32_t start, std::size_t count);
  /// No more calls of the two above will come. @returns the number of landings that make the stream complete;
  /// known only when the target is, so the call back comes at once or from `set_target`.
  void finish(std::function<void(std::uint32_t transfers)> on_count);
  /// Sends nothing more and cancels what is under way; `on_end(false)` follows, unless it ended before.
  void stop();

  /// Once ended: no byte of this stream can be written at the decode side any more. False: that side must
  /// fence us.
  bool fenced() const;
  std::uint64_t bytes_sent() const;

 private:
  /// Positions [start, start + count) of one layer, or of all.
  struct piece {
    std::uint32_t layer;
    std::uint32_t start;
    std::uint32_t count;
    bool all_layers;
  };

  void ready(const piece& what);
  std::vector<slice_pair> slices_of(const piece& what) const;
  void add_rows(std::vector<slice_pair>& out, std::uint32_t block, std::uint32_t layer,
                std::uint32_t first_row, std::uint32_t rows) const;
  void add_tokens(std::vector<slice_pair>& out, std::uint32_t block, std::uint32_t first_row,
                  std::uint32_t rows) const;
  void submit(const piece& what, std::unique_lock<std::mutex>& lock);
  void completed(const completion& done);
  /// Calls `on_end` if nothing is left to happen. Releases the lock.
  void settle(std::unique_lock<std::mutex>& lock);

  const attempt_id id_;
  const kv_layout layout_;
  /// Completions keep the stream alive on the data plane's own threads, where the data plane must not die.
  const std::weak_ptr<data_plane> plane_;
  const std::shared_ptr<std::atomic<std::uint64_t>> transfer_ids_;
  const std::shared_ptr<link_book> links_;  ///< learns from every slice
  const source from_;

  mutable std::mutex mutex_;
  std::function<void(bool)> on_end_;
  std::function<void(std::uint32_t)> on_count_;
  std::optional<kv_target> target_;
  std::vector<piece> waiting_;  ///< ready, but the target is not known
  std::vector<transfer_id> under_way_;
  std::uint32_t submitted_ = 0;  ///< transfers so far; each makes one landing
  std::uint64_t bytes_ = 0;
  bool draining_ = false;  ///< `set_target` is sending what waited; nothing settles meanwhile
  bool finished_ = false;  ///< no more pieces will come
  bool failed_ = false;
  bool stopped_ = false;
  bool ended_ = false;
  bool fenced_ = true;
};

}  // namespace mooncaf
