#pragma once
// How an operation on one object ended, in the numbers that clients of Mooncake Store know.

#include <cstdint>
#include <string_view>

namespace mooncaf {

/// The list is closed on our side: a server sends no other, and a client takes an unknown one for `internal`.
enum class store_code : std::int32_t {
  ok = 0,
  internal = -1,
  invalid_parameters = -600,
  segment_not_found = -101,
  segment_exists = -102,
  no_space = -200,     ///< the pool is full of objects that may not go, or too fragmented
  invalid_key = -400,  ///< empty, or longer than 64 KiB
  write_failed = -500,
  replica_not_ready = -703,  ///< a client is still writing it
  not_found = -704,
  already_exists = -705,
  has_lease = -706,    ///< a client may be reading it
  lease_ended = -707,  ///< it was removed, evicted or replaced while it was read
  transfer_failed = -800,
  checksum_mismatch = -801,
  directory_unreachable = -900,
  timed_out = -901,
  busy = -1010,  ///< room is being made by writing to SSD, or the object is being read from there: ask again
  not_supported = -1012,
  task_not_found = -1400,
  too_many_tasks = -1401,
  quota_exceeded = -1700,         ///< the tenant's, and nothing of its own may go
  tenant_not_registered = -1701,  ///< its token is of another
};

constexpr std::string_view to_string(store_code code) noexcept {
  switch (code) {
    case store_code::ok:
      return "ok";
    case store_code::internal:
      return "internal error";
    case store_code::invalid_parameters:
      return "invalid parameters";
    case store_code::segment_not_found:
      return "no such segment";
    case store_code::segment_exists:
      return "a segment of this name is mounted";
    case store_code::no_space:
      return "no space";
    case store_code::invalid_key:
      return "invalid key";
    case store_code::write_failed:
      return "write failed";
    case store_code::replica_not_ready:
      return "not written yet";
    case store_code::not_found:
      return "not found";
    case store_code::already_exists:
      return "exists already";
    case store_code::has_lease:
      return "in use under a lease";
    case store_code::lease_ended:
      return "gone while it was read";
    case store_code::transfer_failed:
      return "transfer failed";
    case store_code::checksum_mismatch:
      return "checksum mismatch";
    case store_code::directory_unreachable:
      return "the directory does not answer";
    case store_code::timed_out:
      return "timed out";
    case store_code::busy:
      return "not yet";
    case store_code::not_supported:
      return "not supported";
    case store_code::task_not_found:
      return "no such task";
    case store_code::too_many_tasks:
      return "too many tasks";
    case store_code::quota_exceeded:
      return "over the tenant's quota";
    case store_code::tenant_not_registered:
      return "no such tenant";
  }
  return "unknown code";
}

/// Reads a code that came over the wire.
constexpr store_code as_store_code(std::int32_t number) noexcept {
  const auto code = static_cast<store_code>(number);
  return to_string(code) == "unknown code" ? store_code::internal : code;
}

}  // namespace mooncaf
