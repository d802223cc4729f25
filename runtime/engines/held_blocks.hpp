#pragma once
// The KV blocks that an engine is known to hold, by mooncaf's own keys, as they are announced to a conductor.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/block_news.hpp"
#include "runtime/request/messages.hpp"

namespace mooncaf {

/// @thread  Owned by the engine's worker; not synchronised.
class held_blocks {
 public:
  /// Held once more: the same block may lie in several memories of the engine.
  void add(const block_name& name);
  /// … once less. @pre it is held.
  void drop(const block_key& key);
  void clear();

  /// How many of the first keys are held.
  std::uint32_t leading(std::span<const block_key> keys) const;
  std::size_t size() const noexcept { return held_.size(); }

  /// Changes since the last call, numbered on from those before. @returns batches for node `self`, each small enough
  /// for a message.
  std::vector<block_event_batch> take_changes(node_id self);
  /// Everything that is held, for a conductor that knows nothing yet; changes before are in it.
  std::vector<block_event_batch> snapshot(node_id self);

 private:
  struct entry {
    block_name name;
    std::uint32_t times = 0;
  };
  std::unordered_map<block_key, entry> held_;
  std::vector<block_event> changes_;
  std::uint64_t announced_ = 0;  ///< number of the last change that was taken
};

}  // namespace mooncaf
