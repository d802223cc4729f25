#pragma once
// The part of a directory's options that its table of objects takes.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/eviction_order.hpp"
#include "storage/objects/table/shard_commons.hpp"
#include "storage/objects/terms/key_shard.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

struct object_table_options {
  duration lease = std::chrono::seconds(5);      ///< how long a look protects the objects found
  duration soft_pin = std::chrono::minutes(30);  ///< where a put does not say
  duration soft_pin_max = std::chrono::hours(24);
  /// How long the bytes of a writer that was lost stay unused: its last writes may still be on their way.
  duration quarantine = std::chrono::seconds(10);
  /// How long a writer keeps room for an object that it has not named.
  duration ahead_for = std::chrono::seconds(2);
  double high_watermark = 0.95,
         low_watermark = 0.90;  ///< shares of all bytes; above the one, down to the other
  eviction_policy eviction = eviction_policy::lru;
  /// Uses of an object within so long count as one: a client that asks whether it is there reads it next.
  duration one_use = std::chrono::seconds(1);
  /// An object that is read more often gets a replica on another host, where room is free; zero: none does.
  double hot_reads_per_s = 0;
  std::uint32_t hot_replicas = 2;  ///< replicas of such an object at most
  double hot_share = 0.1;          ///< of all bytes may be in such replicas
  std::uint64_t seed = 1;          ///< of the draw between segments
  /// Greater than that of every earlier directory, so that of two values of a key the later one is known.
  std::uint64_t first_ticket = 1;
  /// By name. Keys say which tenant's an object is (`key_scope`). Objects of tenants that are not listed are
  /// not bounded.
  std::vector<std::pair<std::string, tenant_limit>> tenants = {};
  shard_place shard = {};  ///< no two shards give segments the same number
  /// Shared with the other shards of the directory; null: there are none, or this one hears nothing of them.
  std::shared_ptr<shard_commons> commons = {};
};

}  // namespace mooncaf
