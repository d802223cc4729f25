#include "storage/rocksdb_tier.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/base/units.hpp"
#include "storage/float_packing.hpp"
#include "storage/rocksdb_settings.hpp"
#include "storage/rocksdb_tier_impl.hpp"
#include "storage/tier_folder.hpp"

namespace mooncaf {

namespace {

constexpr const char* metadata_family = "metadata";

}  // namespace

error to_error(const rdb::Status& s, const std::string& path) {
  const std::string text = path + ": " + s.ToString();
  if (s.IsNotFound()) return {ec::not_found, text};
  if (s.IsNoSpace()) return {ec::out_of_space, text};
  if (s.IsCorruption()) return {ec::corrupt, text};
  return {ec::io_error, text};
}

// ---- open ----

result<void> rocksdb_tier::impl::open_database() {
  if (auto prepared = prepare_tier_folder(options.path); !prepared) return prepared;
  if (options.direct_io) {
    if (const auto why = why_no_direct_io(options.path); !why.empty()) {
      log("direct I/O is not possible here (" + why + "), reads and writes go through the page cache");
      options.direct_io = false;
    }
  }
  const auto cache = rdb::NewLRUCache(32 * MiB);
  const std::vector<rdb::ColumnFamilyDescriptor> families{
      {rdb::kDefaultColumnFamilyName, block_options(options, cache)},
      {metadata_family, metadata_options(options, cache)},
  };
  std::vector<rdb::ColumnFamilyHandle*> handles;
  rdb::DB* raw = nullptr;
  const auto s = rdb::DB::Open(database_options(options), options.path, families, &handles, &raw);
  if (!s.ok()) return fail(open_error(s));
  db.reset(raw);
  blocks = handles[0];
  metadata = handles[1];
  return {};
}

error rocksdb_tier::impl::open_error(const rdb::Status& s) const {
  error e = to_error(s, options.path);
  if (e.detail.find("lock hold by current process") != std::string::npos) {
    return {ec::already_exists, "the SSD tier in " + options.path + " is open in this process already"};
  }
  if (const auto holder = s.IsIOError() ? lock_holder(options.path) : std::nullopt) {
    return {ec::already_exists, "the SSD tier in " + options.path + " is in use by process " +
                                    std::to_string(*holder) +
                                    "; give each process a folder of its own (--ssd-path)"};
  }
  if (s.IsNotFound()) e.code = ec::corrupt;  // a file that the manifest names
  e.detail = "cannot open the SSD tier in " + e.detail;
  return e;
}

/// Losing the cache costs computing; not starting costs the service.
result<void> rocksdb_tier::impl::open_or_repair(std::vector<listed_block>& found) {
  const auto attempt = [&] {
    auto opened = open_database();
    return opened ? load_index(found) : opened;
  };
  auto opened = attempt();
  if (opened) return opened;
  close();
  const auto& why = opened.error();
  // None of these is mended by other files.
  if (why.code == ec::already_exists || why.code == ec::out_of_space || !takes_files(options.path))
    return opened;
  const auto aside = move_aside(options.path);
  if (!aside) return fail(aside.error());
  log("starts empty: " + why.detail + "; what was there is in " + *aside +
      ", which takes its room on the disk until it is deleted");
  repaired = true;
  found.clear();
  return attempt();
}

/// @param value  begins with a header. @returns whether what follows it is as it was written.
bool rocksdb_tier::impl::take_metadata(rdb::Slice value, listed_block& into) const {
  auto rest = std::as_bytes(std::span{value.data(), value.size()});
  const auto record = block_record::decode(rest);
  rest = rest.subspan(block_record::size_bytes);
  into.name = record->name;
  into.checksum = record->checksum;
  into.bytes = into.stored = record->length_bytes;
  if (record->packed) {
    if (rest.size() < sizeof into.stored) return false;
    std::memcpy(&into.stored, rest.data(), sizeof into.stored);
    rest = rest.subspan(sizeof into.stored);
    if (into.stored > into.bytes) return false;
  }
  if (rest.empty()) return true;
  std::uint64_t sum = 0;
  if (!options.any_size || rest.size() < sizeof sum) return false;
  const auto note = rest.first(rest.size() - sizeof sum);
  std::memcpy(&sum, rest.data() + note.size(), sizeof sum);
  into.note.assign(reinterpret_cast<const char*>(note.data()), note.size());
  return sum == checksum64(note);
}

listed_block rocksdb_tier::impl::look_up(const block_key& key) const {
  listed_block known;
  known.bytes = known.stored = options.block_bytes;
  if (!options.any_size || !db) return known;
  rdb::PinnableSlice value;
  const auto name = encode_key(key);
  if (!db->Get({}, metadata, rdb::Slice(name.data(), name.size()), &value).ok()) return known;
  const auto record = block_record::decode(std::as_bytes(std::span{value.data(), value.size()}));
  if (record && record->length_bytes <= options.block_bytes) (void)take_metadata(value, known);
  return known;
}

// The index lives in memory and is rebuilt here, so that a lookup never asks the disk.
result<void> rocksdb_tier::impl::load_index(std::vector<listed_block>& found) {
  std::size_t foreign = 0, damaged = 0, older = 0;
  held = {};
  std::vector<std::pair<std::uint64_t, block_key>> ages;
  rdb::WriteBatch drop;
  rdb::ReadOptions scan;
  scan.readahead_size = 2 * MiB;
  const std::unique_ptr<rdb::Iterator> it{db->NewIterator(scan, metadata)};
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    const auto record =
        block_record::decode(std::as_bytes(std::span{it->value().data(), it->value().size()}));
    const bool fits = record && (options.any_size ? record->length_bytes <= options.block_bytes
                                                  : record->length_bytes == options.block_bytes);
    const bool ours = fits && record->fingerprint == options.fingerprint && record->parts == parts.count();
    listed_block one;
    if (!ours || !take_metadata(it->value(), one)) {
      const bool other_version = !record && record.error() == ec::incompatible;
      ++(record && !ours ? foreign : other_version ? older : damaged);
      // The range of everything under this key: its parts, or the one piece of version 1.
      const auto from = it->key().ToString();
      drop.DeleteRange(blocks, from, from + std::string(3, '\xff'));
      drop.Delete(metadata, it->key());
      continue;
    }
    ages.emplace_back(record->written, record->name.key);
    held.add(one.bytes, one.stored);
    found.push_back(std::move(one));
  }
  if (!it->status().ok()) {
    error e = to_error(it->status(), options.path);
    e.detail = "cannot list the SSD tier in " + e.detail;
    return fail(std::move(e));
  }
  if (foreign) log("drops " + std::to_string(foreign) + " blocks of another model or layout");
  if (older) log("drops " + std::to_string(older) + " blocks that another version of mooncaf wrote");
  if (damaged) log("drops " + std::to_string(damaged) + " blocks with damaged metadata");
  if (foreign + older + damaged > 0) {
    if (const auto s = db->Write({}, &drop); !s.ok()) return fail(to_error(s, options.path));
  }
  corrupt += damaged;
  superseded += foreign + older + damaged;
  std::sort(ages.begin(), ages.end());
  for (const auto& [number, key] : ages) {
    live.insert(key, short_number(number));
    by_age.emplace_back(short_number(number), key);
    writes = number;
  }
  note_live();
  note_disk_bytes();
  return {};
}

result<std::unique_ptr<rocksdb_tier>> rocksdb_tier::open(
    rocksdb_tier_options options, const std::function<void(const listed_block&)>& visit) {
  if (options.path.empty()) return fail(ec::invalid_argument, "the SSD tier needs a directory");
  if (options.block_bytes == 0 || options.block_bytes > 1 * GiB) {
    return fail(ec::invalid_argument, "SSD tier blocks of " + std::to_string(options.block_bytes) +
                                          " bytes; 1 byte to 1 GiB are possible");
  }
  if (options.part_bytes > 0 && options.block_bytes / options.part_bytes >= 65535) {
    return fail(ec::invalid_argument, "SSD tier blocks in parts of " + std::to_string(options.part_bytes) +
                                          " bytes: more than 65535 of them");
  }
  if (options.any_size && options.part_bytes > 0)
    return fail(ec::invalid_argument, "SSD tier blocks of any size are in one part");
  if (options.read_threads == 0 || options.read_threads > 64) {
    return fail(ec::invalid_argument,
                std::to_string(options.read_threads) + " SSD read threads; 1 to 64 are possible");
  }
  if (options.flush_bytes < 64 * KiB || options.flush_bytes > 4 * GiB) {
    return fail(ec::invalid_argument, "SSD flush_bytes of " + std::to_string(options.flush_bytes) +
                                          "; 64 KiB to 4 GiB are possible");
  }
  if (options.own_process) keep_large_buffers();
  auto self = std::make_unique<impl>(std::move(options));
  std::vector<listed_block> found;
  if (auto opened = self->open_or_repair(found); !opened) return fail(opened.error());
  if (visit) std::ranges::for_each(found, visit);
  return std::unique_ptr<rocksdb_tier>(new rocksdb_tier(std::move(self)));
}

rocksdb_tier::rocksdb_tier(std::unique_ptr<impl> self) : self_(std::move(self)) {}
rocksdb_tier::~rocksdb_tier() = default;

// ---- write ----

/// RocksDB refuses every write after one that failed in the background, long after the disk has recovered. It
/// can resume from some failures; opening it anew cures the others, since all that was acknowledged is on
/// disk. While that does not help, it is tried ever more rarely.
template <class Operation>
rdb::Status rocksdb_tier::impl::with_recovery(const Operation& operation) {
  auto s = db ? operation() : rdb::Status::IOError("could not be opened again after a failed write");
  if (s.ok()) return s;
  if (skip_recoveries > 0) {
    --skip_recoveries;
    return s;
  }
  const auto cause = s;
  // Even then the whole operation is repeated: writes that had skipped the log may be gone.
  if (db && db->Resume().ok()) s = operation();
  // A disk that takes no file now would not let us open either, and until then reads go on.
  if (!s.ok() && takes_files(options.path)) {
    close();
    const auto opened = open_database();
    s = opened ? operation() : rdb::Status::IOError(opened.error().detail);
  }
  recovery_pause = s.ok() ? 0 : std::min(2 * recovery_pause + 1, 1023u);
  skip_recoveries = recovery_pause;
  log((s.ok() ? "writes again after: " : "cannot recover from: ") + cause.ToString());
  return s;
}

// A batch is checked as a whole before any of it is written: it is written together or not at all.
result<void> rocksdb_tier::impl::check(std::span<const put_item> items) const {
  std::uint64_t fresh = 0;
  for (const auto& item : items) {
    const bool fits = options.any_size ? !item.bytes.empty() && item.bytes.size() <= options.block_bytes
                                       : item.bytes.size() == options.block_bytes && item.note.empty();
    if (!fits) {
      return fail(ec::invalid_argument, "block of " + std::to_string(item.bytes.size()) + " bytes; " +
                                            options.path + " holds blocks of " +
                                            std::to_string(options.block_bytes));
    }
    if (live.find(item.block.name.key) == flat_index::none) fresh += item.bytes.size();
  }
  if (held.stored() + fresh > capacity() + (held.stored() < held.bytes() ? options.flush_bytes : 0)) {
    return fail(ec::out_of_space, options.path + " holds " + std::to_string(live.size()) + " blocks, " +
                                      std::to_string(held.stored()) + " of " + std::to_string(capacity()) +
                                      " bytes");
  }
  // Blocks in memory or in the log must still find room as blobs; a database that runs dry cannot even erase.
  std::error_code unknown;
  const auto disk = std::filesystem::space(options.path, unknown);
  const std::uint64_t need = 2 * bytes_of(items) + 6 * options.flush_bytes;
  if (!unknown && disk.available < need) {
    return fail(ec::out_of_space, "the disk of " + options.path + " has " + std::to_string(disk.available) +
                                      " bytes left, less than the " + std::to_string(need) +
                                      " that writing safely needs");
  }
  return {};
}

namespace {

rdb::Slice as_slice(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

rdb::Status rocksdb_tier::impl::add_part(block_record record, std::span<const std::byte> bytes,
                                         std::uint64_t& stored) {
  if (options.pack) {
    packing.resize(std::max(packing.size(), float_packing::bound(bytes.size())));
    if (const auto packed = float_packing::pack(bytes, packing); packed > 0) {
      record.packed = true;
      bytes = std::span{packing}.first(packed);
    }
  }
  stored += bytes.size();
  const auto key = encode_key(record.name.key, record.part);
  const auto head = record.encode();
  const rdb::Slice name{key.data(), key.size()}, value[] = {as_slice(head), as_slice(bytes)};
  return scratch.Put(blocks, rdb::SliceParts(&name, 1), rdb::SliceParts(value, 2));
}

rdb::Status rocksdb_tier::impl::add_metadata(const block_record& record, std::string_view note,
                                             std::uint64_t stored) {
  const auto key = encode_key(record.name.key);
  const auto head = record.encode();
  const auto noted = std::as_bytes(std::span{note});
  const auto sum = checksum64(noted);
  const auto bytes_of = [](const std::uint64_t& x) { return as_slice(std::as_bytes(std::span{&x, 1})); };
  std::vector<rdb::Slice> value{as_slice(head)};
  if (record.packed) value.push_back(bytes_of(stored));
  if (!note.empty()) value.insert(value.end(), {as_slice(noted), bytes_of(sum)});
  const rdb::Slice name{key.data(), key.size()};
  return scratch.Put(metadata, rdb::SliceParts(&name, 1),
                     rdb::SliceParts(value.data(), static_cast<int>(value.size())));
}

// One kept batch is filled each time: a fresh one would grow, and copy its contents, again and again.
rdb::Status rocksdb_tier::impl::write_batch(std::span<const put_item> items, bool logged) {
  rdb::WriteOptions how;
  how.disableWAL = !logged;
  scratch.Clear();
  std::uint64_t number = writes;
  std::vector<std::uint64_t> stored(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [b, bytes, note] = items[i];
    block_record record{options.fingerprint, b.name, bytes.size(), b.checksum, ++number};
    record.parts = parts.count();
    for (; record.part < record.parts; ++record.part) {
      const auto part = bytes.subspan(parts.offset(record.part), part_length(record.part, bytes.size()));
      if (const auto s = add_part(record, part, stored[i]); !s.ok()) return s;
    }
    record.part = 0;
    record.packed = stored[i] < bytes.size();
    if (const auto s = add_metadata(record, note, stored[i]); !s.ok()) return s;
  }
  if (const auto s = db->Write(how, &scratch); !s.ok()) return s;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& key = items[i].block.name.key;
    const bool known = live.find(key) != flat_index::none;
    superseded += known;
    if (!known) held.add(items[i].bytes.size(), stored[i]);
    by_age.emplace_back(short_number(++writes), key);
    live.insert(key, short_number(writes));
  }
  note_live();
  if (by_age.size() > 2 * live.size() + 1024) {
    std::erase_if(by_age, [this](const auto& entry) { return live.find(entry.second) != entry.first; });
  }
  return rdb::Status::OK();
}

/// For `stats`, on other threads.
void rocksdb_tier::impl::note_live() {
  live_count = live.size();
  held_bytes = held.bytes();
  stored_bytes = held.stored();
}

/// All of `items` or an error; nothing is acknowledged in parts, so it may be repeated after a recovery.
rdb::Status rocksdb_tier::impl::write_once(std::span<const put_item> items) {
  // A large batch goes straight to its blob file, which halves the bytes that the disk writes; a small one
  // would leave a file of its own behind, so it goes through the log.
  const bool logged = bytes_of(items) < options.flush_bytes / 2;
  // Small enough to be still in the cache when RocksDB copies it once more.
  for (std::size_t at = 0, n = 0; at < items.size(); at += std::exchange(n, 0)) {
    for (std::uint64_t bytes = 0;
         at + n < items.size() && (n == 0 || bytes + items[at + n].bytes.size() <= 4 * MiB); ++n)
      bytes += items[at + n].bytes.size();
    const auto s = write_batch(items.subspan(at, n), logged);
    if (!s.ok()) return s;
  }
  return logged ? rdb::Status::OK() : db->Flush(rdb::FlushOptions{}, {blocks, metadata});
}

result<void> rocksdb_tier::impl::write(std::span<const put_item> items) {
  const auto s = with_recovery([&] { return write_once(items); });
  if (!s.ok()) return fail(to_error(s, options.path));
  return {};
}

result<void> rocksdb_tier::put(std::span<const put_item> items) {
  if (items.empty()) return {};
  if (auto valid = self_->check(items); !valid) return valid;
  auto done = self_->write(items);
  if (done) self_->written += items.size();
  self_->note_disk_bytes();
  return done;
}

// ---- erase ----

result<void> rocksdb_tier::impl::remove(std::span<const block_key> keys) {
  std::vector<block_key> known;
  for (const auto& key : keys)
    if (live.find(key) != flat_index::none) {
      const auto it = look_up(key);
      held.remove(it.bytes, options.any_size ? std::optional{it.stored} : std::nullopt);
      live.erase(key);
      known.push_back(key);
    }
  if (known.empty()) return {};
  note_live();
  erased += known.size();
  superseded += known.size();
  const auto s = with_recovery([&] {
    rdb::WriteBatch batch;
    for (const auto& key : known) {
      const auto name = encode_key(key);
      auto added = batch.Delete(metadata, rdb::Slice(name.data(), name.size()));
      for (std::uint32_t part = 0; added.ok() && part < parts.count(); ++part) {
        const auto part_name = encode_key(key, part);
        added = batch.Delete(blocks, rdb::Slice(part_name.data(), part_name.size()));
      }
      if (!added.ok()) return added;
    }
    return db->Write({}, &batch);
  });
  if (!s.ok()) return fail(to_error(s, options.path));
  return {};
}

result<void> rocksdb_tier::erase(std::span<const block_key> keys) {
  auto done = self_->remove(keys);
  if (done) self_->collect_garbage_if_due(keys.size());
  return done;
}

// ---- seen from outside ----

ssd_stats rocksdb_tier::stats() const {
  const auto& self = *self_;
  ssd_stats now;
  now.blocks = self.live_count;
  now.blocks_written = self.written;
  now.blocks_read = self.read;
  now.blocks_corrupt = self.corrupt;
  now.blocks_erased = self.erased;
  now.disk_bytes = self.disk_bytes;
  now.held.add(self.held_bytes, self.stored_bytes);
  now.repaired = self.repaired;
  return now;
}

bool rocksdb_tier::direct_io() const noexcept { return self_->options.direct_io; }

}  // namespace mooncaf
