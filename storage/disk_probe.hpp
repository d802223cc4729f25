#pragma once
// How fast a disk reads, found out in a moment.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/rocksdb_tier.hpp"

namespace mooncaf {

/// One read: its bytes and its time.
struct disk_sample {
  std::uint64_t bytes = 0;
  duration took{};
};

/// Reads a few of the blocks that `tier` holds, past the page cache if it was opened so. Empty if none could
/// be read.
/// @thread  blocks on the disk for as long as 32 MiB take it, or one block.
std::vector<disk_sample> probe_reads(rocksdb_tier& tier, std::span<const ssd_block> held,
                                     std::size_t block_bytes);

/// The same where nothing is held yet: writes a file without a name into `folder`, for half of `limit` or
/// until it has 16 MiB, and reads it back, past the page cache where the file system can. Empty if the folder
/// cannot be written.
/// @thread  blocks on the disk for about `limit`, or as long as 1 MiB takes.
std::vector<disk_sample> probe_folder(const std::string& folder, duration limit);

}  // namespace mooncaf
