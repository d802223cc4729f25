#pragma once
// The prefix of one prompt on its way into its blocks, layer by layer, while the layers that are there are
// being computed with.
//
//   data plane:   landed(layer, count) ─┐
//   worker:       give_up()            ─┼─► wait(layer) ──► compute thread, before it reads that layer
//   messenger:    give_up()            ─┘

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// @thread  Safe.
class prefix_load {
 public:
  /// @param on_progress  called whenever more leading layers are in, on the thread that reports them, without
  /// a lock held.
  prefix_load(std::uint32_t layers, std::function<void()> on_progress);

  /// Layers [first, first + count) of all blocks are in memory, not verified yet.
  void landed(std::uint32_t first, std::uint32_t count);
  /// It will not be completed, or is not wanted any more.
  void give_up();
  /// Blocks until `layer` is there. @returns false if it was given up, or `patience` passed without a layer
  /// landing.
  bool wait(std::uint32_t layer, duration patience);
  /// Leading layers that are there.
  std::uint32_t leading() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()> on_progress_;
  std::vector<bool> in_;
  std::uint32_t leading_ = 0;
  std::uint64_t landings_ = 0;
  bool given_up_ = false;
};

using prefix_load_ptr = std::shared_ptr<prefix_load>;

}  // namespace mooncaf
