#pragma once
// gpu/cuda/simt.hpp as CUDA. Instructions that have no intrinsic function without a large header are PTX.

#define MOONCAF_DEVICE __device__ __forceinline__
#define MOONCAF_KERNEL(NAME, PARAMS, THREADS) \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ PARAMS p)
#define MOONCAF_SHARED(TYPE, NAME, COUNT) __shared__ __align__(16) TYPE NAME[COUNT]
#define MOONCAF_UNROLL _Pragma("unroll")
#define MOONCAF_UNROLL_BY(COUNT) _Pragma(MOONCAF_UNROLL_TEXT(unroll COUNT))
#define MOONCAF_UNROLL_TEXT(WORDS) #WORDS
#define MOONCAF_ROLLED _Pragma("unroll 1")

namespace mooncaf::simt {

MOONCAF_DEVICE unsigned thread_index() { return threadIdx.x; }
MOONCAF_DEVICE unsigned block_x() { return blockIdx.x; }
MOONCAF_DEVICE unsigned block_y() { return blockIdx.y; }
MOONCAF_DEVICE unsigned block_z() { return blockIdx.z; }

MOONCAF_DEVICE void sync_block() { __syncthreads(); }
MOONCAF_DEVICE float shuffle_xor(float x, unsigned mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, x, static_cast<int>(mask));
}
MOONCAF_DEVICE std::uint64_t shuffle_xor(std::uint64_t x, unsigned mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, x, static_cast<int>(mask));
}

MOONCAF_DEVICE std::uint32_t add_atomically(std::uint32_t* at, std::uint32_t x) { return atomicAdd(at, x); }
MOONCAF_DEVICE std::uint64_t add_atomically(std::uint64_t* at, std::uint64_t x) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x));
}

MOONCAF_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
MOONCAF_DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
MOONCAF_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
MOONCAF_DEVICE float smaller(float a, float b) { return fminf(a, b); }
MOONCAF_DEVICE float magnitude(float x) { return fabsf(x); }
MOONCAF_DEVICE float square_root(float x) { return __fsqrt_rn(x); }
MOONCAF_DEVICE float exponential(float x) { return expf(x); }
MOONCAF_DEVICE float exponential2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
MOONCAF_DEVICE double nearest(double x) { return rint(x); }
MOONCAF_DEVICE float rounded_up(float x) { return ceilf(x); }

MOONCAF_DEVICE std::uint32_t bits_of(float x) { return __float_as_uint(x); }
MOONCAF_DEVICE float float_from_bits(std::uint32_t bits) { return __uint_as_float(bits); }
MOONCAF_DEVICE std::uint16_t half_bits(float x) {
  std::uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
MOONCAF_DEVICE float half_value(std::uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

MOONCAF_DEVICE words4 load16(const void* at) {
  const uint4 v = *static_cast<const uint4*>(at);
  return {{v.x, v.y, v.z, v.w}};
}
MOONCAF_DEVICE void store16(void* at, const words4& v) {
  *static_cast<uint4*>(at) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}
MOONCAF_DEVICE words2 load8(const void* at) {
  const uint2 v = *static_cast<const uint2*>(at);
  return {{v.x, v.y}};
}

MOONCAF_DEVICE void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

MOONCAF_DEVICE words4 load_matrices(const std::uint16_t* row) {
  words4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return v;
}
MOONCAF_DEVICE words4 load_matrices_turned(const std::uint16_t* row) {
  words4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return v;
}

MOONCAF_DEVICE void copy_async16(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))), "l"(global),
                 "r"(there ? 16 : 0)
               : "memory");
}
MOONCAF_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
MOONCAF_DEVICE void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace mooncaf::simt
