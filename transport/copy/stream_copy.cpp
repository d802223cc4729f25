#include "transport/copy/stream_copy.hpp"

#include <cstring>

#include "runtime/base/hash.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#else
#include <atomic>
#endif

// The kernel for processors without wide vectors, for copies in parts; whole copies the libraries do better.
namespace {
using vec = std::uint64_t __attribute__((vector_size(16)));
inline vec load(const void* p) {
  vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(void* p, vec v) { std::memcpy(p, &v, sizeof(v)); }
inline void stream(void* p, vec v) { store(p, v); }
inline vec exclusive_or(vec a, vec b) { return a ^ b; }
inline vec add64(vec a, vec b) { return a + b; }
inline vec shift_high(vec v) { return v >> 32; }
inline vec swap_halves(vec v) { return vec{v[1], v[0]}; }
inline vec mul_low(vec a, vec b) {
#if defined(__x86_64__)
  return reinterpret_cast<vec>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  constexpr vec low = {0xFFFFFFFF, 0xFFFFFFFF};
  return (a & low) * (b & low);
#endif
}
}  // namespace

using mooncaf::copy_in_parts;
#include "transport/copy/stream_copy_kernel.inl"

namespace mooncaf {
namespace {

void portable_copy(void* to, const void* from, std::size_t n) noexcept {
  if (n > 0) std::memcpy(to, from, n);
}
std::uint64_t portable_checksum(const void* from, std::size_t n) noexcept { return XXH3_64bits(from, n); }
std::uint64_t portable_copy_checksum(void* to, const void* from, std::size_t n) noexcept {
  portable_copy(to, from, n);
  return XXH3_64bits(from, n);
}
constexpr copy_kernels portable_kernels{
    "portable",        portable_copy,  portable_copy_checksum, near_copy_checksum_impl,
    portable_checksum, copy_part_impl, copy_last_impl,         cold_checksum_impl};

}  // namespace

#if defined(__x86_64__)
extern const copy_kernels avx512_copy_kernels;
extern const copy_kernels avx2_copy_kernels;
#endif

copy_kernel_list available_copy_kernels() noexcept {
  copy_kernel_list list;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) list.items[list.count++] = avx512_copy_kernels;
  if (__builtin_cpu_supports("avx2")) list.items[list.count++] = avx2_copy_kernels;
#endif
  list.items[list.count++] = portable_kernels;
  return list;
}

namespace {
const copy_kernels& best() noexcept {
  static const copy_kernels chosen = available_copy_kernels().items[0];
  return chosen;
}
}  // namespace

void stream_copy(void* to, const void* from, std::size_t n) noexcept { best().copy(to, from, n); }
std::uint64_t stream_copy_checksum(void* to, const void* from, std::size_t n) noexcept {
  return best().copy_checksum(to, from, n);
}
std::uint64_t near_copy_checksum(void* to, const void* from, std::size_t n) noexcept {
  return best().near_copy_checksum(to, from, n);
}
std::uint64_t wide_checksum(const void* from, std::size_t n) noexcept { return best().checksum(from, n); }

std::uint64_t cold_checksum(const void* from, std::size_t n) noexcept {
  return best().cold_checksum(from, n);
}
std::size_t stream_copy_part(copy_in_parts& state, void* to, const void* from, std::size_t n) noexcept {
  return best().copy_part(state, to, from, n);
}
std::uint64_t stream_copy_last(copy_in_parts& state, void* to, const void* from, std::size_t n) noexcept {
  return best().copy_last(state, to, from, n);
}

void fence_streamed_stores() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace mooncaf
