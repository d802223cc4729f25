#pragma once
// How RocksDB is set up for KV blocks, each choice with its reason. Only rocksdb_tier.cpp includes this.

#include <rocksdb/cache.h>
#include <rocksdb/options.h>

#include <memory>
#include <string>

#include "storage/rocksdb_tier.hpp"

namespace mooncaf {

/// Tries RocksDB's way of direct I/O. @returns the reason why it cannot, empty if it can.
std::string why_no_direct_io(const std::string& directory);

/// Whether a file of some size can be written to the directory right now.
bool takes_files(const std::string& directory);

/// RocksDB allocates a buffer or two per blob. glibc gives memory of that size back to the kernel at once,
/// and getting it again, zeroed, is more than half of the processor time of a read (measured: 1.47 MB blobs).
/// Keeping a bounded amount is worth it for the whole process.
void keep_large_buffers();

ROCKSDB_NAMESPACE::DBOptions database_options(const rocksdb_tier_options& options);
/// Column family of keys and headers alone.
ROCKSDB_NAMESPACE::ColumnFamilyOptions metadata_options(
    const rocksdb_tier_options& options, const std::shared_ptr<ROCKSDB_NAMESPACE::Cache>& cache);
/// Column family of the blocks; their values lie in blob files.
ROCKSDB_NAMESPACE::ColumnFamilyOptions block_options(const rocksdb_tier_options& options,
                                                     const std::shared_ptr<ROCKSDB_NAMESPACE::Cache>& cache);

}  // namespace mooncaf
