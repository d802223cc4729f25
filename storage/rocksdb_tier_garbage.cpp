#include <rocksdb/db.h>

#include <algorithm>
#include <span>

#include "storage/rocksdb_tier_impl.hpp"

namespace mooncaf {

// Giving back the disk space of erased blocks.
//
// A blob file goes when a compaction has seen that no key points into it any more. Blocks that keep an old
// file alive are written anew, through our own read and its checks. RocksDB could move them in a compaction,
// but one rotten blob fails that compaction, and with it every later write to the database.

/// Merges keys and blob addresses; touches no blob.
void rocksdb_tier::impl::compact() {
  superseded = 0;
  if (!db) return;
  rdb::CompactRangeOptions how;
  how.bottommost_level_compaction = rdb::BottommostLevelCompaction::kForceOptimized;
  for (auto* family : {blocks, metadata}) {
    if (const auto s = db->CompactRange(how, family, nullptr, nullptr); !s.ok()) {
      log("cannot free the space of erased blocks: " + s.ToString());
    }
  }
}

/// For `stats`, which may run on another thread and must not touch the database.
void rocksdb_tier::impl::note_disk_bytes() {
  if (!db) return;
  std::uint64_t sum = 0, part = 0;
  for (auto* family : {blocks, metadata}) {
    if (db->GetIntProperty(family, rdb::DB::Properties::kTotalSstFilesSize, &part)) sum += part;
    if (db->GetIntProperty(family, rdb::DB::Properties::kTotalBlobFileSize, &part)) sum += part;
  }
  disk_bytes = sum;
}

bool rocksdb_tier::impl::much_garbage() const {
  if (!db) return false;
  std::uint64_t on_disk = 0;
  (void)db->GetIntProperty(blocks, rdb::DB::Properties::kTotalBlobFileSize, &on_disk);
  return on_disk > held.stored() + capacity() / 2;
}

/// Writes the `count` oldest live blocks anew. @returns false if the disk refused.
bool rocksdb_tier::impl::move_oldest(std::size_t count) {
  count = std::min(count, live.size());
  std::vector<std::byte> bytes(count * options.block_bytes);
  std::vector<put_item> items;
  std::deque<std::string> notes;
  std::size_t used = 0;
  while (items.size() < count && !by_age.empty()) {
    const auto [number, key] = by_age.front();
    by_age.pop_front();
    if (live.find(key) != number) continue;
    auto known = look_up(key);
    const get_item item{key, std::span{bytes}.subspan(used, known.bytes)};
    const auto found = read_one(item);
    if (found) {
      used += known.bytes;
      notes.push_back(std::move(known.note));
      items.push_back({{found->name, found->checksum}, item.into, notes.back()});
    } else {
      (void)settle(item, found);
    }
  }
  if (items.empty()) return true;
  const auto done = write(items);
  if (!done) log("cannot move old blocks: " + to_string(done.error()));
  return done.has_value();
}

/// With much garbage, moves two blocks for each one erased: enough even if the oldest files are two thirds
/// alive.
void rocksdb_tier::impl::collect_garbage_if_due(std::size_t just_erased) {
  if (much_garbage()) {
    const std::size_t most = std::max<std::size_t>(1, options.flush_bytes / options.block_bytes);
    (void)move_oldest(std::min(most, 2 * just_erased));
  }
  if (superseded * 16 > std::max<std::uint64_t>(options.capacity_blocks, live.size())) compact();
  note_disk_bytes();
}

void rocksdb_tier::collect_garbage() {
  auto& self = *self_;
  self.compact();
  const std::size_t step = std::max<std::size_t>(1, self.options.flush_bytes / self.options.block_bytes);
  for (std::size_t moved = 0; self.much_garbage() && moved < self.live.size(); moved += step) {
    if (!self.move_oldest(step)) break;
    self.compact();
  }
  self.note_disk_bytes();
}

}  // namespace mooncaf
