#pragma once
// gpu/cuda/simt.hpp as plain C++: functions that take more than one thread are declared here and defined by
// the harness that runs it (tests/support/simt). The product never compiles this.

#include <bit>
#include <cmath>

#define MOONCAF_DEVICE inline
#define MOONCAF_KERNEL(NAME, PARAMS, THREADS) extern "C" void NAME(const PARAMS p)
#define MOONCAF_SHARED(TYPE, NAME, COUNT) \
  TYPE* const NAME = static_cast<TYPE*>(::mooncaf::simt::shared_array(#NAME, sizeof(TYPE) * (COUNT)))
#define MOONCAF_UNROLL
#define MOONCAF_UNROLL_BY(COUNT)
#define MOONCAF_ROLLED

namespace mooncaf::simt {

unsigned thread_index();
unsigned block_x();
unsigned block_y();
unsigned block_z();

/// The array of this name of the running block.
void* shared_array(const char* name, std::size_t bytes);

/// Waits for all threads of the block; each can then read what any wrote before. `line` tells barriers
/// apart.
void sync_block(int line = __builtin_LINE());
float shuffle_xor(float x, unsigned mask, int line = __builtin_LINE());
std::uint64_t shuffle_xor(std::uint64_t x, unsigned mask, int line = __builtin_LINE());

/// Adds to an integer in shared memory that other threads of the block may add to meanwhile, and do nothing
/// else with. @returns the number before.
std::uint32_t add_atomically(std::uint32_t* at, std::uint32_t x);
std::uint64_t add_atomically(std::uint64_t* at, std::uint64_t x);

/// d += a · b on the whole warp: a is 16 x 16, b 16 x 8 of f16, d 16 x 8 of f32, spread over the lanes as PTX
/// says for mma.m16n8k16.
void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                 int line = __builtin_LINE());
/// Four 8 x 8 matrices of f16 in shared memory: lane l names row l % 8 of matrix l / 8, and gets of each
/// matrix elements 2 (l % 4) and the next of row l / 4; "turned": of the transposed matrix.
words4 load_matrices(const std::uint16_t* row, int line = __builtin_LINE());
words4 load_matrices_turned(const std::uint16_t* row, int line = __builtin_LINE());

/// Sixteen bytes from global to shared memory, or zeros where nothing is there. They arrive when the thread
/// waits for the group that they were committed in, and others see them behind the next barrier.
void copy_async16(void* shared, const void* global, bool there);
void commit_async();
template <int Pending>
void wait_async();

words4 load16(const void* at);
words2 load8(const void* at);
void store16(void* at, const words4& v);

std::uint16_t half_bits(float x);
float half_value(std::uint16_t bits);

inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
inline float larger(float a, float b) { return std::fmax(a, b); }
inline float smaller(float a, float b) { return std::fmin(a, b); }
inline float magnitude(float x) { return std::fabs(x); }
inline float square_root(float x) { return std::sqrt(x); }
inline float exponential(float x) { return std::exp(x); }
inline float exponential2(float x) { return std::exp2(x); }
inline double nearest(double x) { return std::rint(x); }
inline float rounded_up(float x) { return std::ceil(x); }
inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace mooncaf::simt
