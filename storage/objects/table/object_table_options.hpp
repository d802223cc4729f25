#pragma once
// What a directory's table of objects is to do, as its options say.

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
  duration lease = std::chrono::seconds(10);     ///< how long a look protects what was found
  duration soft_pin = std::chrono::minutes(30);  ///< where a put does not say
  duration soft_pin_max = std::chrono::hours(24);
  /// How long the bytes of a writer that was lost stay unused: what it sent may still be on its way.
  duration quarantine = std::chrono::seconds(10);
  /// How long a writer keeps room for an object that it has not named.
  duration ahead_for = std::chrono::seconds(2);
  double high_watermark = 0.95,
         low_watermark = 0.90;  ///< shares of all bytes; above the one, down to the other
  eviction_policy eviction = eviction_policy::lru;
  /// Uses of an object that lie no farther apart are one: who asks whether it is there reads it next.
  duration one_use = std::chrono::seconds(1);
  /// An object that is read more often gets a replica on another host, where room is free; zero: none does.
  double hot_reads_per_s = 0;
  std::uint32_t hot_replicas = 2;  ///< of such an object, at most
  double hot_share = 0.1;          ///< of all bytes, at most, are in replicas that were made so
  std::uint64_t seed = 1;          ///< of the choice between segments
  /// Grows from one directory to the next, so that of two values of a key the later one is known.
  std::uint64_t first_ticket = 1;
  /// By name. Keys say whose objects are; see `key_scope`. Of others nothing is bounded.
  std::vector<std::pair<std::string, tenant_limit>> tenants = {};
  shard_place shard = {};  ///< numbers of segments are those of no other shard
  /// With the other shards of the directory; null: there is none, or it hears nothing of them.
  std::shared_ptr<shard_commons> commons = {};
};

}  // namespace mooncaf
