#pragma once
// Prompts that come to a worker at once and begin alike: the first computes what they share, and the others find it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// A prompt waits for another one that is ahead of it in the worker's order (not less urgent, and not due later), before it
/// looks for its prefix, until the blocks that both have are there. Waiting costs it nothing but a place in the same step,
/// as the device would compute the other first.
/// @thread  not synchronised
class prefix_turns {
 public:
  /// So many tokens are worth waiting for; a shorter beginning is computed twice, in one step.
  static constexpr std::uint32_t shared_tokens = 256;

  struct prompt {
    std::vector<block_key> keys;  ///< of the blocks that need not be computed, if they are anywhere
    std::uint8_t priority = 1;    ///< 0 first
    time_point deadline{};
  };

  /// @param least  blocks that have to be saved; at least 1
  explicit prefix_turns(std::uint32_t least) : least_(least) {}
  /// @param tokens  of a block. @param worth  see `shared_tokens`
  static prefix_turns of_blocks(std::uint32_t tokens, std::uint32_t worth = shared_tokens) {
    return prefix_turns{std::max(1u, worth / tokens)};
  }

  /// @returns whether it has to wait; `take_ready` names it then.
  bool comes(std::uint64_t owner, prompt p);
  /// So many leading blocks of the owner's prompt can be found by others.
  void there(std::uint64_t owner, std::uint32_t blocks);
  /// The owner waits for blocks from a disk or another node, or does so no longer. Meanwhile nobody waits for it: what
  /// others share with it may be computed before its load is over.
  void loads(std::uint64_t owner, bool now);
  /// The owner computes nothing more. Unknown ones are ignored.
  void ends(std::uint64_t owner);
  /// Prompts whose wait is over, each once.
  std::vector<std::uint64_t> take_ready();

 private:
  struct entry {
    prompt own;
    std::uint32_t there = 0;
    bool loads = false;
    std::optional<std::uint64_t> behind;
    std::uint32_t until = 0;  ///< blocks of the one before it
  };
  /// @returns whether another one is to be waited for.
  bool wait(entry& e, std::uint64_t owner);
  /// Prompts that waited for the owner wait for another, or no longer. @param others  that begin as its prompt does
  void pass_on(std::uint64_t owner, const std::vector<std::uint64_t>& others);

  /// Owners of prompts with the same first block, which alone can share more, in the order in which they came.
  const std::vector<std::uint64_t>& alike(const entry& e) const { return alike_.at(e.own.keys.front()); }

  std::uint32_t least_;
  std::unordered_map<std::uint64_t, entry> all_;                     ///< but for prompts without keys
  std::unordered_map<block_key, std::vector<std::uint64_t>> alike_;  ///< by their first block
  std::vector<std::uint64_t> ready_;
};

}  // namespace mooncaf
