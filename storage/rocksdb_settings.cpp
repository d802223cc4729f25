#include "storage/rocksdb_settings.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <rocksdb/env.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {
namespace rdb = ROCKSDB_NAMESPACE;

namespace {

/// RocksDB's own log would be a file, and in an assertive build, as Debian's, a log file that a full disk cut
/// short aborts the process.
class log_forwarder final : public rdb::Logger {
 public:
  log_forwarder(std::function<void(std::string_view)> to, std::string path)
      : rdb::Logger(rdb::InfoLogLevel::WARN_LEVEL), to_(std::move(to)), path_(std::move(path)) {}
  using rdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    if (!to_) return;
    char line[512];
    std::vsnprintf(line, sizeof line, format, arguments);
    to_("ssd tier " + path_ + ": RocksDB: " + line);
  }

 private:
  std::function<void(std::string_view)> to_;
  std::string path_;
};

}  // namespace

std::string why_no_direct_io(const std::string& directory) {
  const std::string path = directory + "/direct_io_probe";
  struct aligned_page {
    void* at = std::aligned_alloc(4096, 4096);
    ~aligned_page() { std::free(at); }
  } page;
  if (!page.at) return "out of memory";
  std::memset(page.at, 0, 4096);
  const unique_fd fd{::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600)};
  std::string why;
  if (!fd || ::pwrite(fd.get(), page.at, 4096, 0) != 4096 || ::pread(fd.get(), page.at, 4096, 0) != 4096) {
    why = errno_text();
  }
  ::unlink(path.c_str());
  return why;
}

bool takes_files(const std::string& directory) {
  const std::string path = directory + "/write_probe";
  const std::vector<char> some(256 * KiB, 'x');
  const unique_fd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  const bool written = fd && ::write(fd.get(), some.data(), some.size()) == static_cast<ssize_t>(some.size());
  ::unlink(path.c_str());
  return written;
}

void keep_large_buffers() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::mallopt(M_MMAP_THRESHOLD, 32 * static_cast<int>(MiB));
    ::mallopt(M_TRIM_THRESHOLD, 128 * static_cast<int>(MiB));
  });
}

rdb::DBOptions database_options(const rocksdb_tier_options& o) {
  rdb::DBOptions db;
  db.create_if_missing = true;
  db.create_missing_column_families = true;
  db.use_direct_reads = o.direct_io;
  db.use_direct_io_for_flush_and_compaction = o.direct_io;
  // A block and its metadata appear together, also where the log is skipped.
  db.atomic_flush = true;
  // Every record proves itself, so a damaged one in the log need not take its neighbours along.
  db.wal_recovery_mode = rdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  // One memtable is written out while the next one fills.
  db.max_background_flushes = 2;
  db.max_background_compactions = 1;
  db.bytes_per_sync = 4 * MiB;  // no write-back bursts, where the page cache is in use
  db.wal_bytes_per_sync = 4 * MiB;
  db.info_log = std::make_shared<log_forwarder>(o.log, o.path);
  return db;
}

rdb::ColumnFamilyOptions metadata_options(const rocksdb_tier_options& o,
                                          const std::shared_ptr<rdb::Cache>& cache) {
  rdb::ColumnFamilyOptions family;
  rdb::BlockBasedTableOptions table;
  table.block_cache = cache;  // keys and blob addresses alone: tens of bytes a block
  family.table_factory.reset(rdb::NewBlockBasedTableFactory(table));
  family.compression = rdb::kNoCompression;  // KV bytes are floats: they do not compress, they only cost
  family.write_buffer_size = o.flush_bytes;
  family.max_write_buffer_number = 4;
  return family;
}

rdb::ColumnFamilyOptions block_options(const rocksdb_tier_options& o,
                                       const std::shared_ptr<rdb::Cache>& cache) {
  auto family = metadata_options(o, cache);
  family.enable_blob_files = true;
  family.min_blob_size = 0;
  family.blob_file_size =
      std::max<std::uint64_t>(256 * MiB, 4 * o.block_bytes);  // a flush ends its file anyway
  family.enable_blob_garbage_collection = false;              // see "garbage" in rocksdb_tier.cpp
  return family;
}

}  // namespace mooncaf
