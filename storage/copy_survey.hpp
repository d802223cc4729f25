#pragma once
// Finds out which of a full SSD's coldest blocks other nodes keep, too. Pure, so that a simulator asks like a
// shard. Depends on runtime/base alone.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/prefix_tree.hpp"

namespace mooncaf {

/// Goes over the blocks of one tier, again and again while it gives some up, and has its caller ask about the
/// blocks that may leave next:
/// ```
///   next ──► {cold leaf, block of its lot}… ──► an index of all nodes' blocks ──► answer: up the prompt
/// ```
/// Of several holders of a block a lot chooses the one that keeps it. It is drawn by a block before it, at a
/// depth that is a power of four, so that one node keeps most of a prompt's end, and others all that it needs
/// no more. The node that keeps a block has the blocks before it, too, since every tier is closed under
/// prefixes: an answer is good for the leaf and for all before it that have no other child.
/// @thread  not synchronised.  @cost `next`: a few thousand blocks looked at a call.
class copy_survey {
 public:
  /// Keys to ask about now, in pairs (see above); none if all were asked about a moment ago, and nothing was
  /// given up since.
  /// @param given_up  blocks that the tier has given up since the start.
  std::vector<block_key> next(const prefix_tree::tier& order, std::uint64_t given_up, time_point now);
  /// The answer: the leaves of `asked`, in their order, that another node keeps. Blocks that are gone are
  /// ignored.
  static void answer(prefix_tree::tier& order, std::span<const block_key> asked,
                     std::span<const block_key> kept_elsewhere);

 private:
  static constexpr std::size_t keys_max = 512;    // a message of 8 KiB
  static constexpr std::size_t steps_max = 4096;  // some ten microseconds

  prefix_tree::handle cursor_ = prefix_tree::none;
  std::uint64_t given_up_ = 0;  // when the round began
  time_point round_ = time_point{} - std::chrono::hours(1);
};

}  // namespace mooncaf
