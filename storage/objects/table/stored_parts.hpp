#pragma once
// Where the bytes of one object lie, in memory and on SSD, and the sum of such parts: replicas, each of which
// has every byte of the object once.
//
//   memory   [ ticket 7, copy 0: whole ]  [ ticket 7, copy 1: stripe at 0 ][ stripe at 64 KiB ]
//             └─ replica ────────────┘     └─ replica ─────────────────────────────────────┘

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "storage/objects/terms/object_terms.hpp"
#include "storage/offset_allocator.hpp"

namespace mooncaf {

/// A run of a segment's memory that an object takes up: a replica, or a stripe of one.
struct memory_part {
  std::uint32_t segment = 0;
  offset_allocator::extent extent = {};
  std::uint64_t bytes = 0;         ///< its length in the segment
  std::uint64_t at = 0, size = 0;  ///< the bytes of the object that it holds
  std::uint64_t ticket = 0;        ///< under which the segment's holder knows it
  std::uint32_t copy = 0;          ///< which of the ticket's replicas
  bool for_readers = false;        ///< in a replica that the store made because the object is read so often
  std::uint32_t owner = 0;         ///< it counts against this tenant's quota
  /// Whether both are stripes of one replica.
  bool one_with(const memory_part& other) const { return ticket == other.ticket && copy == other.copy; }
};

/// The part of a replica on one SSD: bytes that were consecutive in the memory beside it.
struct disk_part {
  std::uint32_t segment = 0;
  std::uint64_t ticket = 0;        ///< under which the SSD's holder knows it
  std::uint64_t at = 0, size = 0;  ///< the bytes of the object that it holds
  std::uint32_t number = 0;        ///< of the part in its replica; tickets follow it
  std::uint64_t replica() const { return ticket - number; }
};

std::vector<replica_place> places_of(std::span<const memory_part> memory);
std::size_t replica_count(std::span<const memory_part> memory);
/// Segment bytes of the parts that count against some tenant's quota.
std::uint64_t bytes_in_parts(std::span<const memory_part> memory);
bool lies_in(std::span<const memory_part> memory, std::uint32_t segment);
/// The parts without the replicas that have a part in the segment.
std::vector<memory_part> without_replicas_in(std::uint32_t segment, std::span<const memory_part> memory);
/// Whether the parts are replicas of an object of that size, in the order of their bytes, and no two replicas
/// share a segment.
bool are_whole_replicas(std::span<const memory_part> memory, std::uint64_t size);

/// Replica by replica.
std::vector<std::span<const disk_part>> replicas_on_disks(std::span<const disk_part> disks);

/// One part of a replica as it would lie on an SSD, and the memory where it lies now.
struct disk_run {
  disk_part part;
  std::span<const memory_part> from;
};
/// How each replica that lies beside SSDs alone would lie there: stripes that follow each other in one
/// segment are one part, since the SSD's holder reaches no other memory. Tickets are zero.
/// @param ssd_beside  the SSD of a memory segment's holder; zero: it has none.
std::vector<std::vector<disk_run>> runs_to_save(
    std::span<const memory_part> memory, const std::function<std::uint32_t(std::uint32_t)>& ssd_beside);

}  // namespace mooncaf
