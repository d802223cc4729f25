#include "storage/objects/segment/shared_ledger.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/hash.hpp"
#include "storage/objects/wire/endpoint_wire.hpp"
#include "transport/copy/stream_copy.hpp"

namespace mooncaf {

namespace {
/// Pieces in which an object is checked: 8 bytes are kept for each.
constexpr std::uint64_t piece_bytes = 64 * KiB;
}  // namespace

/// The part that the tenant may reach; null if there is none.
segment_ledger::tenant_part* shared_ledger::part_of(std::string_view tenant, std::uint64_t offset,
                                                    std::uint64_t bytes) {
  if (tenant == endpoint_wire::everyone) {
    auto* const part = ledger_.anyones_part_at(offset, bytes);
    return part && part->sealed ? part : nullptr;
  }
  auto* const part = ledger_.part_at(offset, bytes);
  return part && part->owner == tenant ? part : nullptr;
}

/// @param to_write  a published object at this place is one that has gone, which the ledger has not heard
/// yet.
/// @returns null at the limit, or if the place is another tenant's then.
segment_ledger::tenant_part* shared_ledger::wait_for(std::unique_lock<std::mutex>& lock,
                                                     std::string_view tenant, std::uint64_t offset,
                                                     std::uint64_t bytes, bool to_write, time_point until) {
  segment_ledger::tenant_part* found = nullptr;
  changed_.wait_until(lock, until, [&] {
    found = part_of(tenant, offset, bytes);
    if (found && (to_write ? found->sealed : !found->sealed && !found->clean)) found = nullptr;
    return found != nullptr;
  });
  return found;
}

/// Computes the checksums of a part that is a whole object, once for the same bytes. Releases the lock
/// meanwhile, so `part` may become another one. @returns no pieces if the bytes are not the published ones.
shared_ledger::looked shared_ledger::look_through(std::unique_lock<std::mutex>& lock,
                                                  const segment_ledger::tenant_part& part) {
  const auto ticket = part.ticket, offset = part.offset, bytes = part.size, expected = *part.checksum;
  if (part.piece_sums) return {expected, part.piece_sums};
  lock.unlock();
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  std::vector<std::uint64_t> sums;
  sums.reserve((bytes + piece_bytes - 1) / piece_bytes);
  for (std::uint64_t at = 0; at < bytes; at += piece_bytes) {
    const auto piece = memory_.subspan(offset + at, std::min(piece_bytes, bytes - at));
    // Piece by piece before the whole: a piece whose bytes change in between does not pass with the whole.
    sums.push_back(wide_checksum(piece.data(), piece.size()));
    XXH3_64bits_update(&hash, piece.data(), piece.size());
  }
  looked seen{XXH3_64bits_digest(&hash), nullptr};
  if (seen.whole == expected)
    seen.pieces = std::make_shared<const std::vector<std::uint64_t>>(std::move(sums));
  lock.lock();
  auto* const now = ledger_.part_at(offset, bytes);
  if (now && now->ticket == ticket) now->piece_sums = seen.pieces;
  return seen;
}

shared_ledger::reading shared_ledger::begin_read(std::string_view tenant, std::uint64_t offset,
                                                 std::uint64_t bytes, time_point until) {
  const bool everyone = tenant == endpoint_wire::everyone;
  std::unique_lock lock{mutex_};
  const auto* const part = wait_for(lock, tenant, offset, bytes, false, everyone ? clock_type::now() : until);
  if (!part) return {};
  reading r{store_code::ok, tenant, part->ticket, offset, bytes, part->offset, part->size, nullptr, {}};
  if (!part->checksum) return r;
  const bool all = bytes == r.object_bytes;
  if (everyone) {
    if (all) r.checksum = part->checksum;
    return r;
  }
  const auto seen = look_through(lock, *part);
  r.sums = seen.pieces;
  if (!seen.pieces) r.code = store_code::checksum_mismatch;
  if (all) r.checksum = seen.whole;
  return r;
}

store_code shared_ledger::read(const reading& r, std::uint64_t at, std::span<std::byte> into) {
  if (!r.sums) {
    std::memcpy(into.data(), memory_.data() + r.offset + at, into.size());
    return still_there(r) ? store_code::ok : store_code::not_found;
  }
  const auto object = memory_.subspan(r.object_offset, r.object_bytes);
  const auto begin = r.offset - r.object_offset + at, end = begin + into.size();
  for (auto from = begin; from < end;) {
    const auto number = from / piece_bytes;
    const auto piece =
        object.subspan(number * piece_bytes, std::min(piece_bytes, r.object_bytes - number * piece_bytes));
    const auto n = std::min(end, number * piece_bytes + piece.size()) - from;
    auto* const to = into.data() + (from - begin);
    auto sum = near_copy_checksum(to, object.data() + from, n);
    // The copy is checked, not the place: an object that has taken the place meanwhile is noticed even if the
    // directory's word of it is still on its way.
    if (n < piece.size()) sum = wide_checksum(piece.data(), piece.size());
    if (sum != (*r.sums)[number]) return store_code::checksum_mismatch;
    from += n;
  }
  return still_there(r) ? store_code::ok : store_code::not_found;
}

bool shared_ledger::still_there(const reading& r) {
  std::lock_guard lock{mutex_};
  const auto* const now = part_of(r.tenant, r.offset, r.bytes);
  return now && now->ticket == r.ticket;
}

store_code shared_ledger::look(std::string_view tenant, std::uint64_t offset, std::uint64_t bytes,
                               time_point until, std::uint64_t& checksum) {
  std::unique_lock lock{mutex_};
  const auto whole = [&]() -> segment_ledger::tenant_part* {
    auto* const part = ledger_.anyones_part_at(offset, bytes);
    const bool his = part && (tenant == endpoint_wire::everyone || part->owner == tenant);
    return his && part->sealed && part->offset == offset && part->size == bytes ? part : nullptr;
  };
  segment_ledger::tenant_part* part = nullptr;
  if (!changed_.wait_until(lock, until, [&] { return (part = whole()) != nullptr; }))
    return store_code::not_found;
  const auto ticket = part->ticket;
  if (tenant != endpoint_wire::everyone && part->checksum) {
    checksum = look_through(lock, *part).whole;
  } else {
    lock.unlock();
    checksum = cold_checksum(memory_.data() + offset, bytes);
    lock.lock();
  }
  const auto* const now = whole();
  return now && now->ticket == ticket ? store_code::ok : store_code::not_found;
}

shared_ledger::writing shared_ledger::begin_write(std::string_view tenant, std::uint64_t offset,
                                                  std::uint64_t bytes, time_point until) {
  std::unique_lock lock{mutex_};
  auto* const part = wait_for(lock, tenant, offset, bytes, true, until);
  if (!part) return {};
  const bool whole = bytes == part->size;
  if (!whole && !part->clean) {
    std::memset(memory_.data() + part->offset, 0, part->size);
    part->clean = true;
  }
  return {store_code::ok, part->ticket, offset, bytes, whole};
}

segment_ledger::tenant_part* shared_ledger::still(const writing& w) {
  auto* const part = ledger_.part_at(w.offset, w.bytes);
  return part && part->ticket == w.ticket && !part->sealed && !part->owner.empty() ? part : nullptr;
}

bool shared_ledger::write(const writing& w, std::uint64_t at, std::span<const std::byte> bytes) {
  std::lock_guard lock{mutex_};  // the ledger hears of no other owner while bytes go in
  if (!still(w)) return false;
  std::memcpy(memory_.data() + w.offset + at, bytes.data(), bytes.size());
  return true;
}

void shared_ledger::end(const writing& w) {
  std::lock_guard lock{mutex_};
  if (auto* const part = still(w); part && w.whole) part->clean = true;
}

}  // namespace mooncaf
