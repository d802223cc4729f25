#pragma once
// Bytes in a ring of shared memory, which the other end has mapped, too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace mooncaf::ring_bytes {

// ThreadSanitizer orders accesses by address, and one page mapped twice has two: where both ends of a link
// live in one process (tests), it cannot see that a number orders the writes before it. These calls tell it.
#if defined(__SANITIZE_THREAD__)
inline char both_mappings;
inline void published() { __tsan_release(&both_mappings); }
inline void observed() { __tsan_acquire(&both_mappings); }
#else
inline void published() {}
inline void observed() {}
#endif

/// @param ring  has `capacity` bytes of `data`, around whose end `from`, at most as many, may wrap.
/// @param at  bytes ever written or read before these.
template <class Ring>
void copy_in(Ring& ring, std::uint64_t at, std::span<const std::byte> from) {
  const auto start = static_cast<std::size_t>(at % Ring::capacity);
  const auto first = std::min(from.size(), Ring::capacity - start);
  std::memcpy(ring.data + start, from.data(), first);
  if (first < from.size()) std::memcpy(ring.data, from.data() + first, from.size() - first);
}
template <class Ring>
void copy_out(const Ring& ring, std::uint64_t at, std::span<std::byte> to) {
  const auto start = static_cast<std::size_t>(at % Ring::capacity);
  const auto first = std::min(to.size(), Ring::capacity - start);
  std::memcpy(to.data(), ring.data + start, first);
  if (first < to.size()) std::memcpy(to.data() + first, ring.data, to.size() - first);
}

}  // namespace mooncaf::ring_bytes
