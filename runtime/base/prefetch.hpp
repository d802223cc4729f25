#pragma once
// Asking for memory before it is needed.

namespace mooncaf {

/// Brings the cache line at `p` near; any address will do.
inline void prefetch(const void* p) noexcept {
  __builtin_prefetch(p);
  // GCC 12 takes a function that does nothing but prefetch for one without effect and drops calls of it.
  asm volatile("");
}

}  // namespace mooncaf
