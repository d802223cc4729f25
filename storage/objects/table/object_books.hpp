#pragma once
// The parts of the table that own data. `object_life` and the classes above it are given these books, and
// each takes the ones it needs.

#include "storage/objects/table/disk_space.hpp"
#include "storage/objects/table/disk_work.hpp"
#include "storage/objects/table/lone_parts.hpp"
#include "storage/objects/table/object_groups.hpp"
#include "storage/objects/table/object_index.hpp"
#include "storage/objects/table/object_journal.hpp"
#include "storage/objects/table/object_order.hpp"
#include "storage/objects/table/object_protection.hpp"
#include "storage/objects/table/object_table_options.hpp"
#include "storage/objects/table/object_warmth.hpp"
#include "storage/objects/table/object_writers.hpp"
#include "storage/objects/table/placement.hpp"
#include "storage/objects/table/segment_space.hpp"
#include "storage/objects/table/tenant_quotas.hpp"

namespace mooncaf {

struct object_books {
  object_books(object_table_options opts, object_journal* hears)
      : options(std::move(opts)),
        journal(hears),
        quotas(options.tenants, options.shard, options.commons.get()),
        space(quotas, journal),
        placing(space, options.seed),
        disks(quotas),
        lone(disks, journal),
        work(quotas),
        groups(options.shard, options.commons.get()),
        order(options.eviction, options.one_use, options.shard, options.commons.get()),
        warmth(index, options.hot_reads_per_s, options.hot_replicas),
        writers(options.first_ticket) {}
  object_books(const object_books&) = delete;
  object_books& operator=(const object_books&) = delete;

  const object_table_options options;
  object_journal* const journal;  ///< may be null
  object_index index;
  tenant_quotas quotas;
  segment_space space;
  segment_placement placing;
  disk_space disks;
  lone_parts lone;
  disk_work work;
  object_protection protection;
  object_groups groups;
  object_order order;
  object_warmth warmth;
  object_writers writers;
};

}  // namespace mooncaf
