#pragma once
// Regions that the initiator of a link offers: the memory that its owner copies from.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "transport/shm/link_memory.hpp"
#include "transport/shm/shm_wire.hpp"

namespace mooncaf {

/// @thread  not synchronised: the transport's loop
class offered_memory {
 public:
  /// Maps the memory of an `offer` packet. @param fds  came with it; none is kept.
  /// @error `ec::invalid_argument` without a descriptor or with too many offers open; as `peer_memory::map`
  result<void> add(const shm_packet& offer, const std::vector<unique_fd>& fds);
  /// Lets go of a region, and of its memfd when no other region lies in it.
  void withdraw(region_id region);
  /// @returns where `length` bytes of a region lie; null unless all of them were offered.
  const std::byte* find(region_id region, std::uint64_t offset, std::uint64_t length) const;

 private:
  struct offered {
    std::byte* base = nullptr;
    std::uint64_t length = 0;
    std::uint64_t inode = 0;
  };
  peer_memory memfds_;
  std::unordered_map<region_id, offered> regions_;
};

}  // namespace mooncaf
