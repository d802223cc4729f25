// Compiled for avx512 only; includes nothing that could leave such code in a shared inline function.
#define XXH_INLINE_ALL
#define XXH_PREFETCH_DIST 4096  // cold data: a page ahead hashes a quarter faster than the default
#include <immintrin.h>
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

#include "transport/copy/stream_copy.hpp"

namespace {
using vec = __m512i;
inline vec load(const void* p) { return _mm512_loadu_si512(static_cast<const vec*>(p)); }
inline void store(void* p, vec v) { _mm512_storeu_si512(static_cast<vec*>(p), v); }
inline void stream(void* p, vec v) { _mm512_stream_si512(static_cast<vec*>(p), v); }
inline vec exclusive_or(vec a, vec b) { return _mm512_xor_si512(a, b); }
inline vec add64(vec a, vec b) { return _mm512_add_epi64(a, b); }
inline vec mul_low(vec a, vec b) { return _mm512_mul_epu32(a, b); }
inline vec shift_high(vec v) { return _mm512_srli_epi64(v, 32); }
inline vec swap_halves(vec v) {
  return _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(_MM_SHUFFLE(1, 0, 3, 2)));
}
}  // namespace

using mooncaf::copy_in_parts;
#include "transport/copy/stream_copy_kernel.inl"

namespace mooncaf {
extern const copy_kernels avx512_copy_kernels;
const copy_kernels avx512_copy_kernels{
    "avx512",      copy_impl,      copy_checksum_impl, near_copy_checksum_impl,
    checksum_impl, copy_part_impl, copy_last_impl,     cold_checksum_impl};
}  // namespace mooncaf
