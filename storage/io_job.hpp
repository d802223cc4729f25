#pragma once
// Disk work as values: the shard decides, an I/O thread executes, the result comes back as a value.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/block_allocator.hpp"
#include "storage/rocksdb_tier.hpp"

namespace mooncaf {

/// One block to move between a slot and the SSD. The slot belongs to the job until its result is handed back.
struct io_job {
  enum class kind : std::uint8_t { write, read, erase };
  std::uint64_t id = 0;
  kind what = kind::read;
  ssd_block block;
  slot_ref slot;  ///< none for erase
};

struct io_result {
  std::uint64_t id = 0;
  error failure;  ///< `ec::none` on success
  bool ok() const noexcept { return failure.code == ec::none; }
};

/// Executes jobs in order, neighbours of one kind together (one write batch, several reads in flight).
/// @param block_bytes  bytes of a block, as the tier was opened with.
/// @thread  blocks on the disk; the I/O thread calls it.
std::vector<io_result> execute(std::span<const io_job> jobs, rocksdb_tier& tier, std::size_t block_bytes);

}  // namespace mooncaf
