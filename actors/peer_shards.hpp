#pragma once
// The peers of a process on its data plane, and the shards of peers whose blocks may be read.

#include <unordered_map>

#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"

namespace mooncaf {

/// Carries out the orders of a `peer_fence`. @thread  Owned by the messenger; not synchronised.
class peer_shards {
 public:
  explicit peer_shards(context_ptr context) : context_(std::move(context)) {}

  /// The peer introduced itself; of several times the last one counts.
  void greeted(const node_info& peer) { known_[peer.id] = peer; }
  /// Lets the peer write here. @pre it was greeted @returns whether its blocks can be read.
  bool admit(node_id peer);
  void part(node_id peer) { shards_.erase(peer); }
  void remove(node_id peer);
  /// Null: its blocks may not be read.
  cache_shard_actor find(node_id peer) const;
  void clear();

 private:
  context_ptr context_;
  std::unordered_map<node_id, node_info> known_;
  std::unordered_map<node_id, cache_shard_actor> shards_;
};

/// Shuts a peer out, for which it waits. @returns whether none of its bytes can land any more. @thread any
bool close_peer(const node_context& context, node_id peer);

}  // namespace mooncaf
