#include "storage/objects/shared_ledger.hpp"

#include <cstring>

#include "runtime/base/hash.hpp"
#include "storage/objects/gate_wire.hpp"

namespace mooncaf {

/// @param to_write  what was published there is an object that has gone, of which the ledger has not heard
/// yet.
/// @returns null at the limit, or if it is somebody else's then.
segment_ledger::tenant_part* shared_ledger::wait_for(std::unique_lock<std::mutex>& lock,
                                                     std::string_view tenant, std::uint64_t offset,
                                                     std::uint64_t bytes, bool to_write, time_point until) {
  segment_ledger::tenant_part* found = nullptr;
  changed_.wait_until(lock, until, [&] {
    found = ledger_.part_at(offset, bytes);
    if (found && (found->owner != tenant || (to_write ? found->sealed : !found->sealed && !found->clean)))
      found = nullptr;
    return found != nullptr;
  });
  return found;
}

store_code shared_ledger::read(std::string_view tenant, std::uint64_t offset, std::span<std::byte> into,
                               time_point until) {
  std::unique_lock lock{mutex_};
  const auto* const part = wait_for(lock, tenant, offset, into.size(), false, until);
  if (!part) return store_code::not_found;
  const auto was = *part;
  lock.unlock();
  std::memcpy(into.data(), memory_.data() + offset, into.size());
  const bool all = into.size() == was.size;
  const auto* const looked_at = all ? into.data() : memory_.data() + was.offset;
  // Looked at after they were copied: what has taken the place meanwhile would be seen here. So it is even
  // where the directory's word of it is still on its way.
  if (was.checksum && XXH3_64bits(looked_at, was.size) != *was.checksum) return store_code::checksum_mismatch;
  lock.lock();
  const auto* const now = ledger_.part_at(offset, into.size());
  return now && now->owner == tenant && now->ticket == was.ticket ? store_code::ok : store_code::not_found;
}

store_code shared_ledger::look(std::string_view tenant, std::uint64_t offset, std::uint64_t bytes,
                               time_point until, std::uint64_t& checksum) {
  std::unique_lock lock{mutex_};
  const auto whole = [&]() -> segment_ledger::tenant_part* {
    auto* const part = ledger_.anyones_part_at(offset, bytes);
    const bool his = part && (tenant == gate_wire::everyone || part->owner == tenant);
    return his && part->sealed && part->offset == offset && part->size == bytes ? part : nullptr;
  };
  segment_ledger::tenant_part* part = nullptr;
  if (!changed_.wait_until(lock, until, [&] { return (part = whole()) != nullptr; }))
    return store_code::not_found;
  const auto ticket = part->ticket;
  lock.unlock();
  checksum = XXH3_64bits(memory_.data() + offset, bytes);
  lock.lock();
  const auto* const now = whole();
  return now && now->ticket == ticket ? store_code::ok : store_code::not_found;
}

shared_ledger::writing shared_ledger::begin(std::string_view tenant, std::uint64_t offset,
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
