#pragma once
// One object as the table has it: its traits, where its bytes lie, and a slot for each part of the table that
// keeps something of every object. A slot's data are private to the part that declares it; the other parts
// use the slot's functions.

#include <cstdint>
#include <string>
#include <vector>

#include "storage/objects/table/disk_space.hpp"
#include "storage/objects/table/disk_work.hpp"
#include "storage/objects/table/object_groups.hpp"
#include "storage/objects/table/object_life.hpp"
#include "storage/objects/table/object_order.hpp"
#include "storage/objects/table/object_protection.hpp"
#include "storage/objects/table/object_warmth.hpp"
#include "storage/objects/table/object_writers.hpp"
#include "storage/objects/table/stored_parts.hpp"

namespace mooncaf {

/// Published, or being written; lives in an `object_index`, at one address for as long as it is there.
struct stored_object {
  const std::string* key = nullptr;  ///< the index's own
  bool beside = false;  ///< being written while its key has another value, which it is to replace
  std::uint64_t size = 0, checksum = 0;
  std::uint64_t version = 0;        ///< the first of its tickets, for ever
  std::uint32_t owner = 0;          ///< see `tenant_quotas`
  std::vector<memory_part> memory;  ///< replica by replica, stripes in their order
  std::vector<disk_part> disks;     ///< replica by replica, parts in their order

  object_writers::slot writing;
  object_protection::slot protection;
  object_groups::slot group;
  object_order::slot order;
  object_warmth::slot warmth;
  disk_space::slot on_disk;
  disk_work::slot work;
  object_life::slot stay;

  bool published() const noexcept { return !writing.open(); }
};

}  // namespace mooncaf
