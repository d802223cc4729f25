#pragma once
// Writing memory that other hosts read one-sidedly at any time.

#include <cstddef>

namespace mooncaf {

/// Readers come as a NIC does, without a lock, and tell torn bytes by a checksum, or read one byte at a time: so
/// ThreadSanitizer shall not take a transport's thread that reads on their behalf for a race.
__attribute__((no_sanitize("thread"))) inline void store_one_sided(std::byte& to, std::byte value) {
  __atomic_store_n(reinterpret_cast<unsigned char*>(&to), static_cast<unsigned char>(value),
                   __ATOMIC_RELEASE);
}

}  // namespace mooncaf
