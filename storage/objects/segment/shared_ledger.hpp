#pragma once
// A segment and the ledger of its contents, shared by the thread that hears the directory and the threads of
// the endpoint's connections.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/objects/segment/segment_ledger.hpp"

namespace mooncaf {

/// Tenants reach bytes by place; the ledger, which hears it from the directory, says which tenant's they are.
/// A place of which it has not heard yet is waited for, since the client may be faster than the journal.
/// @thread  All functions may be called from any thread.
class shared_ledger {
 public:
  explicit shared_ledger(std::span<std::byte> memory) : memory_(memory) {}

  /// Calls `f` with the ledger, alone; threads that wait for a place look again.
  template <class F>
  auto with(F&& f) {
    std::lock_guard lock{mutex_};
    changed_.notify_all();
    return std::forward<F>(f)(ledger_);
  }

  /// Bytes of one of the tenant's objects, to be copied in steps.
  struct reading {
    store_code code = store_code::not_found;
    std::string_view tenant;
    std::uint64_t ticket = 0, offset = 0, bytes = 0;
    std::uint64_t object_offset = 0, object_bytes = 0;       ///< the part of the object that lies here in one
                                                             ///< piece
    std::shared_ptr<const std::vector<std::uint64_t>> sums;  ///< of its pieces; null: the bytes are not
                                                             ///< checked
    std::optional<std::uint64_t> checksum;  ///< xxh3-64 of the bytes to read, where that is known
  };
  /// A published object that lies here as a whole is held against its checksum, unless it was before: from
  /// then on each piece is held against its bytes at that time, so reading a part costs what the part does.
  /// Of an object that is not published yet, bytes not written are zero.
  /// @param tenant  must outlive the reading; `endpoint_wire::everyone` reads objects published and known
  /// here now, unchecked: such a client knows the objects' checksums.
  /// @error not_found for objects not the tenant's, checksum_mismatch
  reading begin_read(std::string_view tenant, std::uint64_t offset, std::uint64_t bytes, time_point until);
  /// Copies some of it. @param at  in the reading. @error not_found if another object has the place by now,
  /// checksum_mismatch; then `into` holds bytes that must not be handed out.
  store_code read(const reading& r, std::uint64_t at, std::span<std::byte> into);
  /// The bytes where they lie, for `everyone`; that client notices by the checksum if they change meanwhile.
  std::span<const std::byte> bytes_of(const reading& r) const { return memory_.subspan(r.offset, r.bytes); }

  /// Checks all bytes of a published object, which lie here in one piece; a tenant's object once, since its
  /// later reads are held against that.
  /// @param tenant  that has the object, or `endpoint_wire::everyone`. @param checksum  xxh3-64 of the bytes
  /// there.
  /// @error not_found for an object not the tenant's or not published, or a part of one
  store_code look(std::string_view tenant, std::uint64_t offset, std::uint64_t bytes, time_point until,
                  std::uint64_t& checksum);

  /// A part of an object of the tenant's that is being written.
  struct writing {
    store_code code = store_code::not_found;
    std::uint64_t ticket = 0, offset = 0, bytes = 0;
    bool whole = false;  ///< all of the object's bytes here
  };
  /// Clears the bytes of the object that no earlier write has touched, unless this one covers all of it.
  writing begin_write(std::string_view tenant, std::uint64_t offset, std::uint64_t bytes, time_point until);
  /// @param at  in the part. @returns false if the object is not being written any more.
  bool write(const writing& w, std::uint64_t at, std::span<const std::byte> bytes);
  /// All of it was written.
  void end(const writing& w);

 private:
  segment_ledger::tenant_part* wait_for(std::unique_lock<std::mutex>& lock, std::string_view tenant,
                                        std::uint64_t offset, std::uint64_t bytes, bool to_write,
                                        time_point until);
  segment_ledger::tenant_part* part_of(std::string_view tenant, std::uint64_t offset, std::uint64_t bytes);
  bool still_there(const reading& r);
  segment_ledger::tenant_part* still(const writing& w);
  struct looked {
    std::uint64_t whole = 0;
    std::shared_ptr<const std::vector<std::uint64_t>> pieces;
  };
  looked look_through(std::unique_lock<std::mutex>& lock, const segment_ledger::tenant_part& part);

  std::span<std::byte> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  segment_ledger ledger_;
};

}  // namespace mooncaf
