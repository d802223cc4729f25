#pragma once
// Makes ids of requests: unique in the cluster without asking another node.

#include <cstdint>

#include "runtime/base/ids.hpp"

namespace mooncaf {

/// The parts of a process that issue ids. A process may have both.
enum class request_issuer : std::uint8_t {
  gateway = 0,      ///< for clients
  pool_keeper = 1,  ///< for copies that it makes
};

/// An id has 57 bits at most: seven bits are left for the number of a try.
inline constexpr unsigned attempt_bits = 7;

/// The request of a try, from the id that names the try (`attempt_id::owner`).
constexpr request_id request_of_try(request_id one_try) noexcept {
  return request_id{one_try.value >> attempt_bits};
}

/// Counts up the ids of one issuer of one node.
///
///   bit 56   issuer      bits 32–55   node (24 bits of its random id)      bits 0–31   count, from 1
///
/// @thread  not synchronised
class request_ids {
 public:
  request_ids(node_id node, request_issuer issuer)
      : prefix_(static_cast<std::uint64_t>(issuer) << 56 | (node.value & 0xFFFFFF) << 32) {}
  /// Starts again after 2^32 - 1 ids.
  request_id next() noexcept {
    if (++count_ == 0) ++count_;
    return request_id{prefix_ | count_};
  }

 private:
  std::uint64_t prefix_;
  std::uint32_t count_ = 0;
};

}  // namespace mooncaf
