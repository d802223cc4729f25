#pragma once
// Inside the SSD tier; for its own files alone.

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/block_parts.hpp"
#include "storage/block_record.hpp"
#include "storage/flat_index.hpp"
#include "storage/packed_bytes.hpp"
#include "storage/reader_pool.hpp"
#include "storage/rocksdb_tier.hpp"

namespace mooncaf {
namespace rdb = ROCKSDB_NAMESPACE;

/// An error of RocksDB on the tier at `path`, as ours.
error to_error(const rdb::Status& s, const std::string& path);

struct rocksdb_tier::impl {
  rocksdb_tier_options options;
  block_parts parts{options.block_bytes, options.part_bytes > 0 ? options.part_bytes : options.block_bytes};
  std::unique_ptr<rdb::DB> db;
  rdb::ColumnFamilyHandle* blocks = nullptr;
  rdb::ColumnFamilyHandle* metadata = nullptr;
  flat_index live;          // key -> its latest write, as in `by_age`
  rdb::WriteBatch scratch;  // kept: fresh memory for every batch costs more than the copy
  reader_pool readers;
  std::deque<std::pair<std::uint32_t, block_key>>
      by_age;  // writes, oldest first; blocks that were overwritten since included
  std::uint64_t writes = 0;
  unsigned recovery_pause = 0, skip_recoveries = 0;  // see with_recovery
  bool repaired = false;                             // at open
  packed_bytes held;                                 // live blocks
  std::vector<std::byte> packing;                    // kept, as `scratch` is
  std::size_t superseded = 0;                        // blobs erased or overwritten since the last compaction
  std::atomic<std::uint64_t> live_count{0}, written{0}, read{0}, corrupt{0}, erased{0}, disk_bytes{0},
      held_bytes{0}, stored_bytes{0}, room_bytes{0};

  explicit impl(rocksdb_tier_options o) : options(std::move(o)), readers(options.read_threads) {}
  ~impl() { close(); }

  void close() {
    if (!db) return;
    for (auto* family : {blocks, metadata}) (void)db->DestroyColumnFamilyHandle(family);
    (void)db->Close();
    db.reset();
  }

  void log(const std::string& line) const {
    if (options.log) options.log("ssd tier " + options.path + ": " + line);
  }

  result<void> open_database();
  error open_error(const rdb::Status& s) const;
  result<void> load_index(std::vector<listed_block>& found);
  result<void> open_or_repair(std::vector<listed_block>& found);
  bool take_metadata(rdb::Slice value, listed_block& into) const;
  /// The metadata of a live block; where all have one size it is not read, and how well it packed is not known.
  listed_block look_up(const block_key& key) const;
  std::uint64_t capacity() const { return options.capacity_blocks * options.block_bytes; }
  std::uint64_t bytes_of(std::span<const put_item> items) const {
    std::uint64_t sum = 0;
    for (const auto& item : items) sum += item.bytes.size();
    return sum;
  }
  /// Length of a part of a block that is `bytes` long.
  std::size_t part_length(std::uint32_t part, std::size_t bytes) const {
    return std::min(parts.length(part), bytes - parts.offset(part));
  }

  template <class Operation>
  rdb::Status with_recovery(const Operation& operation);
  result<void> check(std::span<const put_item> items) const;
  result<void> write(std::span<const put_item> items);
  rdb::Status write_once(std::span<const put_item> items);
  rdb::Status write_batch(std::span<const put_item> items, bool logged);
  /// @returns an error, or adds to `stored` what it takes on disk.
  rdb::Status add_part(block_record record, std::span<const std::byte> bytes, std::uint64_t& stored);
  rdb::Status add_metadata(const block_record& record, std::string_view note, std::uint64_t stored);
  void note_live();
  /// One block while its parts are read, in order.
  struct reading;
  void read_part(const get_item& item, std::uint32_t part, reading& so_far) const;
  result<block_record> end(const get_item& item, reading& whole) const;
  result<block_record> read_one(const get_item& item) const;
  result<void> settle(const get_item& item, const result<block_record>& outcome);
  result<void> remove(std::span<const block_key> keys);
  void compact();
  void note_disk_bytes();
  bool much_garbage() const;
  bool move_oldest(std::size_t count);
  void collect_garbage_if_due(std::size_t just_erased);
  /// Number of a write in 32 bits, never the reserved value.
  static std::uint32_t short_number(std::uint64_t write) {
    return static_cast<std::uint32_t>(write % flat_index::none);
  }
};

}  // namespace mooncaf
