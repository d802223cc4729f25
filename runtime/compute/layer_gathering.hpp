#pragma once
// Layers of a chunk that wait for each other, so that a slice is worth its cost.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "runtime/base/kv_layout.hpp"
#include "runtime/compute/kv_piece.hpp"

namespace mooncaf {

/// Layers leave one by one, unless pages are laid out by token: there a layer of a token has some 100 bytes
/// to some KiB, with the next layer right behind it. @thread  not synchronised
class layer_gathering {
 public:
  explicit layer_gathering(const kv_layout& layout) : n_layers_(layout.n_layers) {
    if (layout.pages != page_order::page_first) return;
    const auto groups = (layout.bytes_per_token() + worth_a_slice - 1) / worth_a_slice;
    together_ = static_cast<std::uint32_t>((layout.n_layers + groups - 1) / groups);
  }

  /// One layer of a chunk is written. @returns the layers that leave now.
  std::optional<kv_piece> add(const kv_piece& layer) {
    if (together_ == 1) return layer;
    auto& held = held_[layer.first];
    const bool behind = layer.layer == held.layer + held.layers && layer.last == held.last;
    if (behind) ++held.layers;
    else held = layer;  // a pass that begins anew
    if (held.layers < together_ && layer.layer + 1 < n_layers_) return std::nullopt;
    return held_.extract(layer.first).mapped();
  }

 private:
  /// Bytes of a token: beside the time that these take, a slice's own cost is small.
  static constexpr std::size_t worth_a_slice = 16 * KiB;

  std::uint32_t n_layers_;
  std::uint32_t together_ = 1;
  std::map<std::uint32_t, kv_piece> held_;  ///< by first position, until the others of a group are written
};

}  // namespace mooncaf
