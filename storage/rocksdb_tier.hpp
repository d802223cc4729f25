#pragma once
// The SSD tier: KV blocks in RocksDB, values in blob files, found again after a restart.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/block_name.hpp"
#include "runtime/base/result.hpp"
#include "storage/packed_bytes.hpp"

namespace mooncaf {

struct rocksdb_tier_options {
  std::string path;             ///< directory; made if absent
  std::size_t block_bytes = 0;  ///< every block has exactly this size, or, with `any_size`, at most
  /// Blocks may be smaller, and bring a note along that `open` tells. Then they are in one part, and no key
  /// is written twice.
  bool any_size = false;
  /// A block is written, and can be read, in parts of so many bytes; 0: in one. Blocks in parts of another
  /// size are dropped by `open`.
  std::size_t part_bytes = 0;
  hash128 fingerprint;  ///< model, weights, dtype and layout; a block of another one is a miss
  /// `put` refuses beyond it; each counts as `block_bytes`, or its size, or what it was packed to. Where blocks are packed
  /// there may be `flush_bytes` more: how well the next ones pack is known afterwards.
  std::uint64_t capacity_blocks = 0;
  bool pack = true;           ///< `float_packing`, where that pays; blocks are read either way
  bool direct_io = true;      ///< bypass the page cache where the filesystem allows it
  unsigned read_threads = 4;  ///< reads in flight in `multi_get`, 1 to 64
  /// Blocks gather in memtables of this size (up to four), each becomes one blob file.
  std::size_t flush_bytes = 32u << 20;
  bool own_process = true;  ///< the process serves the tier alone: then its memory is kept as suits the disk
  /// Gets one line per noteworthy event (fallbacks, repairs, dropped entries); may be called from any thread.
  std::function<void(std::string_view)> log;
};

/// A block as the index of the SSD tier knows it.
struct ssd_block {
  block_name name;
  std::uint64_t checksum = 0;  ///< checksum64 of the block's bytes
};

/// A block as `open` found it.
struct listed_block : ssd_block {
  std::uint64_t bytes = 0, stored = 0;  ///< of the block; on disk, less where it is packed
  std::string note;
};

/// A block to write; bytes and note are read during `put` only.
struct put_item {
  ssd_block block;
  std::span<const std::byte> bytes;
  std::string_view note = {};  ///< empty unless blocks may have any size
};

/// A block to read; `into` is as long as the block and is written during `get` only. On failure its content
/// is undefined.
struct get_item {
  block_key key;
  std::span<std::byte> into;
};

/// Counters since `open`.
struct ssd_stats {
  std::uint64_t blocks = 0;      ///< live now
  std::uint64_t disk_bytes = 0;  ///< files on disk now, garbage included
  packed_bytes held;             ///< live blocks
  std::uint64_t blocks_written = 0;
  std::uint64_t blocks_read = 0;
  std::uint64_t blocks_corrupt = 0;  ///< failed a check on read or at open, dropped
  std::uint64_t blocks_erased = 0;
  bool repaired = false;  ///< `open` moved files aside that it could not open
};

/// Persistent store of blocks, of one size or (`any_size`) of any up to a largest.
///
/// A block has a value for each of its parts: a header (magic, version, fingerprint, key, parent, depth,
/// length, checksum, number of the write, which part) and the part's bytes. The same header without bytes
/// lies in a column family of its own, so that `open` lists the blocks without reading a blob; it is written
/// together with all parts or not at all. A block is served only if the headers are those of one write, and
/// fingerprint and checksum agree: a flipped bit, a truncated blob or another model's block is
/// `ec::not_found` or `ec::corrupt`, the entry is dropped, and nothing crashes.
///
/// A part that floating-point numbers fill may lie there packed. The checksum is of the block as it was.
///
/// **Durability**: when `put` returns, the blocks survive the death of the process (kill -9): each batch is
/// one atomic write, acknowledged only once it is with the operating system. After a power cut the most
/// recent ones may be gone; the others verify.
/// @thread  All calls block on the disk: use a dedicated I/O thread, one caller at a time; `stats` from any
/// thread.
class rocksdb_tier {
 public:
  /// Opens or creates, and lists the blocks held. A cache repairs itself: files that cannot be opened are
  /// moved to the folder `damaged` within, said in the log, and the tier starts empty. Also tells glibc's
  /// malloc, for the whole process, to keep up to 128 MiB of freed large buffers, which halves the processor
  /// time of reads.
  /// @param visit  called once per live block before `open` returns, in no order.
  /// @error `ec::invalid_argument` for options out of range; `ec::already_exists` if a process, which is
  /// named, has the folder open; `ec::out_of_space` on a full disk; `ec::io_error` if the folder takes no
  /// files.
  static result<std::unique_ptr<rocksdb_tier>> open(
      rocksdb_tier_options options, const std::function<void(const listed_block&)>& visit = {});
  ~rocksdb_tier();
  rocksdb_tier(const rocksdb_tier&) = delete;
  rocksdb_tier& operator=(const rocksdb_tier&) = delete;

  /// Writes blocks in this order; an existing key is overwritten. After an error a leading part may have been
  /// written: erase blocks that must not come back.
  /// @error `ec::out_of_space` beyond the capacity or on a full disk, `ec::invalid_argument` for a wrong
  /// size,
  ///        `ec::io_error` otherwise.
  result<void> put(std::span<const put_item> blocks);
  /// Reads and verifies one block. @error `ec::not_found`, `ec::corrupt` (dropped), `ec::io_error`.
  result<void> get(const get_item& block);
  /// The same for many, `read_threads` at a time. @returns one result per item, in order.
  /// @param in  called with the index of each block that could be read as soon as it is in its buffer and
  ///            verified, on one of several threads, in no order.
  std::vector<result<void>> multi_get(std::span<const get_item> blocks,
                                      const std::function<void(std::size_t)>& in = {});
  /// The same in step: the first part of all blocks, then the second, and so on, for readers that can use the
  /// first parts before the others are there.
  /// @param in  called on the calling thread with how many leading parts of all blocks are in their buffers;
  /// nothing is verified before the last one, and with that all is. Called with nothing, once and as the
  /// last, if some block cannot be read; the others are read to their end. Returns whether the rest is still
  /// wanted: if not, it is not read, and every block is `ec::cancelled`.
  std::vector<result<void>> read_in_step(std::span<const get_item> blocks,
                                         const std::function<bool(std::optional<std::uint32_t>)>& in);
  /// Unknown keys are ignored.
  result<void> erase(std::span<const block_key> keys);

  /// Frees the disk space of erased blocks until files hold at most half a capacity of garbage. `erase` does
  /// so in small steps, so that this need not be called.
  void collect_garbage();

  ssd_stats stats() const;
  /// Whether reads and writes bypass the page cache.
  bool direct_io() const noexcept;

 private:
  struct impl;
  explicit rocksdb_tier(std::unique_ptr<impl> self);
  std::unique_ptr<impl> self_;
};

}  // namespace mooncaf
