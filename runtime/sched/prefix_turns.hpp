#pragma once
// Prompts that come to a worker at once and begin alike: the first computes what they share, and the others find it.

#include <cstdint>
#include <map>
#include <optional>
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
  struct prompt {
    std::vector<block_key> keys;  ///< of the blocks that need not be computed, if they are anywhere
    std::uint8_t priority = 1;    ///< 0 first
    time_point deadline{};
  };

  /// @param least  blocks that have to be saved; at least 1
  explicit prefix_turns(std::uint32_t least) : least_(least) {}

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
  /// Who waited for the owner waits for another, or no longer.
  void pass_on(std::uint64_t owner);

  std::uint32_t least_;
  std::map<std::uint64_t, entry> all_;
  std::vector<std::uint64_t> ready_;
};

}  // namespace mooncaf
