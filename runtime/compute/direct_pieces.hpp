#pragma once
// Layers of a chunk that leave from a device's own memory, while the same rows come to the host's.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "runtime/compute/kv_piece.hpp"

namespace mooncaf {

/// Both happen to every such piece, in any order; the later of the two tells whether it has to leave from the
/// host's memory after all.
///
///   began ──► under way ── ended, delivered ──► left ── in memory ──► forgotten
///                 │  └──── ended, not so ─────► failed ── in memory ──► leaves from there, under its old id
///                 └─ in memory ──► … ── ended ──► forgotten, or leaves from there
///
/// @thread  not synchronised
class direct_pieces {
 public:
  void began(const kv_piece& what, transfer_id id) {
    pieces_[key_of(what)] = {id};
    ++under_way_;
  }

  /// The transfer from the device is over. @param repeat  it did not deliver, and may be made again.
  /// @returns whether the piece has to leave from the host's memory now.
  bool ended(const kv_piece& what, bool delivered, bool repeat) {
    --under_way_;
    const auto i = pieces_.find(key_of(what));
    auto& own = i->second;
    own.under_way = false;
    own.failed = repeat;
    const bool in_memory = own.in_memory;
    if (in_memory || (!delivered && !repeat)) pieces_.erase(i);
    return repeat && in_memory;
  }

  struct verdict {
    bool left = false;                 ///< false: no such piece left, or is about to leave, from the device
    std::optional<transfer_id> again;  ///< it did not arrive: it leaves once more, under this id
  };
  /// The piece is in the host's memory, too.
  verdict in_memory(const kv_piece& what) {
    const auto i = pieces_.find(key_of(what));
    if (i == pieces_.end()) return {};
    if (i->second.under_way) {
      i->second.in_memory = true;
      return {true, std::nullopt};
    }
    const auto own = i->second;
    pieces_.erase(i);
    return {true, own.failed ? std::optional{own.id} : std::nullopt};
  }

  /// Transfers that read the device's memory.
  std::size_t under_way() const noexcept { return under_way_; }

 private:
  struct piece {
    transfer_id id;
    bool under_way = true;
    bool in_memory = false;
    bool failed = false;
  };
  using key = std::pair<std::uint32_t, std::uint32_t>;  ///< layer, first position
  static key key_of(const kv_piece& what) { return {what.layer, what.first}; }

  std::map<key, piece> pieces_;
  std::size_t under_way_ = 0;
};

}  // namespace mooncaf
