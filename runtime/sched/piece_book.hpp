#pragma once
// Which pieces of a fetch have arrived, which are on their way, and which sender delivers the next one.
//
//             next                arrived
//   waiting ────────► on its way ─────────► here
//      ▲                  │ failed
//      └──────────────────┘ another sender delivers it; the one that failed delivers nothing any more

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// How a fetch is cut into pieces.
struct piece_options {
  /// Blocks of a run: enough to fill a link, few enough that a fetch that is stopped wasted little. HiCache
  /// has 128 pages of 64 tokens.
  std::uint32_t run_blocks = 32;
  /// Pieces of one sender at once: one is on the link while the next one is asked for.
  std::uint32_t at_once = 2;
  /// A piece has as many layers as make slices that paths move at full speed (tests/bench/README.md), and no
  /// more, since computing waits for the first.
  std::size_t full_speed = 160 * KiB;

  std::uint32_t layers_at_once(std::uint32_t layers, std::size_t layer_bytes) const noexcept {
    const auto fast = std::max<std::size_t>(1, full_speed / std::max<std::size_t>(layer_bytes, 1));
    return static_cast<std::uint32_t>(std::min<std::size_t>(fast, layers));
  }
};

/// Pieces are numbered in the order in which they are wanted. A sender has a leading run of them, since it
/// holds a prefix. Once no sender is left that has a certain piece, that piece and all behind it will not
/// come: blocks behind a gap are no prefix.
/// @thread  not synchronised  @cost O(senders) a piece
class piece_book {
 public:
  /// A piece, and the node that delivers it.
  struct share {
    std::uint32_t piece = 0;
    node_id from;
  };

  piece_book() = default;
  /// @param pieces   how many there are. @param at_once  that one sender has on their way at most; >= 1.
  piece_book(std::uint32_t pieces, std::uint32_t at_once)
      : arrived_(pieces), end_(pieces), at_once_(at_once) {}

  /// @param pieces  leading ones that `node` can deliver. @pre it was not added before
  void add_sender(node_id node, std::uint32_t pieces) { senders_.push_back({node, pieces, 0}); }
  /// The next piece, from the sender with the fewest on their way: it is on its way now. Nothing if every
  /// sender that has it is busy, or if no further piece will come.
  std::optional<share> next();
  void arrived(const share& s);
  /// @param s  on its way until now.
  void failed(const share& s);

  std::uint32_t under_way() const noexcept { return under_way_; }
  /// Leading pieces that are here.
  std::uint32_t leading() const noexcept;
  bool complete() const noexcept { return leading() == arrived_.size(); }
  /// Whether some pieces will never come.
  bool cut_short() const noexcept { return end_ < arrived_.size(); }

 private:
  struct sender {
    node_id node;
    std::uint32_t pieces = 0;
    std::uint32_t under_way = 0;
  };
  sender& sender_of(const share& s);

  std::vector<sender> senders_;
  std::vector<bool> arrived_;
  std::set<std::uint32_t> again_;  ///< that a sender did not deliver
  std::uint32_t asked_ = 0;        ///< pieces [0, asked_) were on their way once
  std::uint32_t end_ = 0;          ///< the first piece that will not come, or their number
  std::uint32_t at_once_ = 1;
  std::uint32_t under_way_ = 0;
};

}  // namespace mooncaf
