#pragma once
// The structs that travel between actors and hold their handles, beside those of
// runtime/request/messages.hpp: together the project's dictionary.

#include <array>
#include <caf/actor.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/request/messages.hpp"

namespace mooncaf {

/// All that a prefill and a decode worker need for one attempt; both get the same struct, at the same time.
struct generate_job : work_order {
  caf::actor gateway;  ///< a gateway_actor: tokens go there
  caf::actor prefill;  ///< a prefill_worker_actor
  caf::actor decode;   ///< a decode_worker_actor
};

// ---- nodes
// ----------------------------------------------------------------------------------------------------------

/// A worker of a node, as peers address it.
struct worker_info {
  worker_id id;
  worker_role role = worker_role::prefill;
  caf::actor handle;
  std::uint32_t capacity = 0;  ///< decode: largest batch; prefill: token budget of a step
  /// Calibration of the device it runs on: (new tokens or batch, cached or context tokens, nanoseconds) per
  /// sample.
  std::vector<std::array<std::int64_t, 3>> samples;
  std::uint64_t memory_tokens = 0;  ///< decode: tokens of KV that its share of the node's memory holds
};

/// A node as it introduces itself.
struct node_info : introduction {
  std::vector<worker_info> workers;
  caf::actor shard;      ///< a cache_shard_actor, or none
  caf::actor keeper;     ///< a pool_keeper_actor: this node takes copies of other nodes' blocks
  caf::actor node;       ///< its node_actor
  caf::actor conductor;  ///< a conductor_actor, if it runs there
  /// In a greeting: the sender's number for its acquaintance with the receiver. Another one than before
  /// means that it had lost the receiver (runtime/sched/peer_roster.hpp).
  std::uint64_t meeting = 0;
  std::string directory;  ///< HOST:PORT of the object store's directory that this process carries, or empty
};

/// What the conductor answers to a report: how the sender stands, and the news about the others.
struct roster_msg : standing {
  std::vector<node_info> others;  ///< of the news: all other members, by id, name and address only
};

}  // namespace mooncaf
