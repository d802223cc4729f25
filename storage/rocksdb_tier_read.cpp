#include <rocksdb/db.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/units.hpp"
#include "storage/float_packing.hpp"
#include "storage/rocksdb_tier_impl.hpp"

namespace mooncaf {

// Reading blocks: in one go, or many in step, part by part.

struct rocksdb_tier::impl::reading {
  error failure;        // once there is one, nothing more is read
  block_record record;  // of the first part
  XXH3_state_t hash;    // of the bytes so far, so that no byte is read twice to be verified
};

// Bytes are hashed as they come, so that with the last part the whole block is verified.
void rocksdb_tier::impl::read_part(const get_item& item, std::uint32_t part, reading& so_far) const {
  if (so_far.failure.code != ec::none) return;
  const auto refuse = [&](ec code, std::string detail) { so_far.failure = {code, std::move(detail)}; };
  if (options.any_size ? item.into.size() > options.block_bytes : item.into.size() != options.block_bytes) {
    return refuse(ec::invalid_argument, "buffer of " + std::to_string(item.into.size()) +
                                            " bytes for a block of " + std::to_string(options.block_bytes));
  }
  if (!db) return refuse(ec::io_error, options.path + " could not be opened again after a failed write");
  rdb::ReadOptions how;
  // Our own checksum covers a block from the writer's slot to the reader's; RocksDB's crc32c would be a
  // second one, and without SSE 4.2 (as Debian builds it) it halves the speed.
  how.verify_checksums = false;
  rdb::PinnableSlice value;
  const auto key = encode_key(item.key, part);
  const auto s = db->Get(how, blocks, rdb::Slice(key.data(), key.size()), &value);
  const auto name = "block " + to_string(item.key);
  if (s.IsNotFound() && part == 0) return refuse(ec::not_found, name + " is not in " + options.path);
  if (!s.ok()) {
    // A blob that is too short or gone is reported as an I/O error by some paths; either way this entry is
    // lost.
    so_far.failure = to_error(s, options.path);
    if (so_far.failure == ec::not_found || s.IsIOError()) so_far.failure.code = ec::corrupt;
    return;
  }
  const auto bytes = std::as_bytes(std::span{value.data(), value.size()});
  const auto found = block_record::decode(bytes);
  if (!found) return refuse(ec::corrupt, name + ": " + found.error().detail);
  if (part == 0) {
    so_far.record = *found;
    XXH3_64bits_reset(&so_far.hash);
  }
  auto expected = so_far.record;  // parts of one write differ in their number alone
  expected.part = part;
  expected.packed = found->packed;
  const bool ours = found->fingerprint == options.fingerprint && found->name.key == item.key &&
                    found->length_bytes == item.into.size() && found->parts == parts.count();
  const auto length = part_length(part, item.into.size());
  const auto into = item.into.subspan(parts.offset(part), length);
  const auto from = bytes.subspan(block_record::size_bytes);
  if (!ours || *found != expected ||
      (found->packed ? !float_packing::unpack(from, into) : from.size() != length))
    return refuse(ec::corrupt, name + " holds something else than its name says");
  if (found->packed) {
    XXH3_64bits_update(&so_far.hash, into.data(), length);
    return;
  }
  // Step by step, so that copied bytes are hashed while they are in the cache.
  constexpr std::size_t step = 32 * KiB;
  for (std::size_t at = 0; at < length; at += step) {
    const auto n = std::min(step, length - at);
    std::memcpy(into.data() + at, from.data() + at, n);
    XXH3_64bits_update(&so_far.hash, into.data() + at, n);
  }
}

result<block_record> rocksdb_tier::impl::end(const get_item& item, reading& whole) const {
  if (whole.failure.code == ec::none && XXH3_64bits_digest(&whole.hash) != whole.record.checksum)
    whole.failure = {ec::corrupt, "block " + to_string(item.key) + " fails its checksum"};
  if (whole.failure.code != ec::none) return fail(whole.failure);
  return whole.record;
}

result<block_record> rocksdb_tier::impl::read_one(const get_item& item) const {
  reading whole;
  for (std::uint32_t part = 0; part < parts.count(); ++part) read_part(item, part, whole);
  return end(item, whole);
}

/// Counts a read, and forgets a block that cannot be served.
result<void> rocksdb_tier::impl::settle(const get_item& item, const result<block_record>& outcome) {
  if (outcome) {
    ++read;
    return {};
  }
  if (outcome.error().code == ec::corrupt) {
    ++corrupt;
    log("drops a block: " + outcome.error().detail);
    // Whether or not the erasure succeeds, the block is a miss: the next read fails in the same way.
    (void)remove({&item.key, 1});
  }
  return fail(outcome.error());
}

result<void> rocksdb_tier::get(const get_item& item) { return self_->settle(item, self_->read_one(item)); }

std::vector<result<void>> rocksdb_tier::multi_get(std::span<const get_item> items,
                                                  const std::function<void(std::size_t)>& in) {
  std::vector<result<block_record>> found(items.size());
  self_->readers.run(items.size(), [&](std::size_t i) {
    found[i] = self_->read_one(items[i]);
    if (found[i] && in) in(i);
  });
  std::vector<result<void>> outcomes;
  outcomes.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) outcomes.push_back(self_->settle(items[i], found[i]));
  return outcomes;
}

std::vector<result<void>> rocksdb_tier::read_in_step(
    std::span<const get_item> items, const std::function<bool(std::optional<std::uint32_t>)>& in) {
  std::vector<impl::reading> readings(items.size());
  const auto parts = self_->parts.count();
  const auto failed = [](const impl::reading& r) { return r.failure.code != ec::none; };
  bool good = true;
  for (std::uint32_t part = 0; part < parts; ++part) {
    self_->readers.run(items.size(), [&](std::size_t i) { self_->read_part(items[i], part, readings[i]); });
    const bool still = good && std::ranges::none_of(readings, failed);
    if (good && !still) (void)in(std::nullopt);
    good = still;
    if (good && part + 1 < parts && !in(part + 1))
      return std::vector<result<void>>(items.size(), fail(ec::cancelled, "nobody waits for it"));
  }
  std::vector<result<void>> outcomes;
  outcomes.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    outcomes.push_back(self_->settle(items[i], self_->end(items[i], readings[i])));
  if (good)
    (void)in(std::ranges::any_of(outcomes, [](const auto& o) { return !o; }) ? std::nullopt
                                                                             : std::optional{parts});
  return outcomes;
}

}  // namespace mooncaf
