#include "actors/peer_shards.hpp"

#include "runtime/log/log.hpp"
#include "runtime/sched/link_book.hpp"

namespace mooncaf {

bool peer_shards::admit(node_id peer) {
  const auto& info = known_.at(peer);
  const auto announced = decode_announcement(info.data_plane);
  const bool added = announced && context_->plane->add_peer(announced->address, announced->regions);
  if (!added || !info.shard) return false;
  shards_[peer] = caf::actor_cast<cache_shard_actor>(info.shard);
  return true;
}

void peer_shards::remove(node_id peer) {
  part(peer);
  known_.erase(peer);
  context_->links->forget(peer);
  context_->plane->remove_peer(peer);
}

cache_shard_actor peer_shards::find(node_id peer) const {
  const auto i = shards_.find(peer);
  return i == shards_.end() ? cache_shard_actor{} : i->second;
}

void peer_shards::clear() {
  known_.clear();
  shards_.clear();
}

bool close_peer(const node_context& context, node_id peer) {
  const auto closed = context.plane->close_peer(peer);
  // The peer maps our memory, and neither stopped nor died: slots that it knows must not be reused yet.
  if (!closed) log_warn("fence", {{"peer", to_string(peer)}, {"problem", to_string(closed.error())}});
  return closed.has_value();
}

}  // namespace mooncaf
