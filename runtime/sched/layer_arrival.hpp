#pragma once
// When to begin computing behind a prefix with layers still coming in.

#include <algorithm>
#include <cstdint>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Layer l of the new tokens needs layer l of the prefix and no more, so a pass may begin while later layers
/// are on their way; begun too early, it holds the device and waits. It begins when the layers that are
/// missing are expected to take no longer than the pass: then none of them is waited for, and the wait for
/// loading beyond the pass was spent without the device. On a device with memory of its own the pass takes as
/// long as its link at least: that brings a layer while the next ones come in.
///
///   load  ├─0─┬─1─┬─2─┬─3─┤                 load  ├──0──┬──1──┬──2──┬──3──┤
///   pass      ├──0──┬──1──┬──2──┬──3──┤     pass            ├─0─┬─1─┬─2─┬─3─┤
/// @thread  One owner; not synchronised.
class layer_arrival {
 public:
  layer_arrival() = default;
  layer_arrival(std::uint32_t layers, time_point began) : layers_(layers), began_(began), latest_(began) {}

  /// The first `count` layers are in.
  void landed(std::uint32_t count, time_point now) noexcept {
    if (count <= in_) return;
    in_ = std::min(count, layers_);
    latest_ = now;
  }
  /// Time until the last layer is in, at the pace so far; unknown before the first.
  duration remaining() const noexcept {
    if (in_ == 0) return duration::max();
    return (latest_ - began_) / in_ * (layers_ - in_);
  }
  bool may_begin(duration pass) const noexcept { return remaining() <= pass; }
  /// How long a pass waits for one layer, holding the device, before it gives up: a multiple of the time that
  /// the rest should take, and no less than a scheduling hiccup.
  duration patience() const noexcept {
    constexpr duration hiccup = std::chrono::milliseconds(100);
    return in_ == 0 ? hiccup : std::max<duration>(hiccup, 3 * remaining());
  }

 private:
  std::uint32_t layers_ = 0, in_ = 0;
  time_point began_{}, latest_{};
};

}  // namespace mooncaf
