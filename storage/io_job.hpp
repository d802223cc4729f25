#pragma once
// Disk work as values: the shard decides, an I/O thread executes, the result comes back as a value.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "storage/block_allocator.hpp"
#include "storage/rocksdb_tier.hpp"

namespace mooncaf {

/// Names a request that waits for blocks from SSD.
using ticket_id = basic_id<struct ticket_tag>;

/// One block to move between a slot and the SSD. The slot belongs to the job until its result is handed back.
struct io_job {
  enum class kind : std::uint8_t { write, read, erase };
  std::uint64_t id = 0;
  kind what = kind::read;
  ssd_block block;
  slot_ref slot;   ///< none for erase
  ticket_id load;  ///< reads of one load are done in step, part by part; zero: a read of its own
};

struct io_result {
  std::uint64_t id = 0;
  error failure;  ///< `ec::none` on success
  bool ok() const noexcept { return failure.code == ec::none; }
};

/// Called on the I/O thread with how many leading parts of all blocks of a load are in their slots; with the
/// last one all is verified. Called with nothing if a block cannot be read, and then no more. Returns whether
/// the rest is still wanted; if not, it is not read, and its jobs fail as `ec::cancelled`.
using load_progress = std::function<bool(ticket_id load, std::optional<std::uint32_t> parts)>;

/// Executes jobs in order, neighbours of one kind (and load) together: one write batch, several reads in
/// flight.
/// @param shape  of the blocks in memory, of as many bytes as the tier was opened with; blocks in pieces are
/// gathered for the disk, and scattered when read.
/// @thread  blocks on the disk; the I/O thread calls it.
std::vector<io_result> execute(std::span<const io_job> jobs, rocksdb_tier& tier, const block_pieces& shape,
                               const load_progress& progress = {});

}  // namespace mooncaf
