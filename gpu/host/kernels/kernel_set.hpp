// The kernels as one unit per instruction set. Included by portable.cpp, avx2.cpp and avx512.cpp, each
// compiled for its instruction set with MOONCAF_KERNELS naming the namespace and MOONCAF_ISA the set. No
// include guard: it is a body.
//
// Kernels are written for sixteen f32 lanes; simd.hpp says how each instruction set holds them. Multiply-adds
// are written out (`fma`), because contraction left to the compiler may differ between the instances of one
// template, and with it the last bit of a sum.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "gpu/host/kernels.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace mooncaf::MOONCAF_KERNELS {

namespace {

#include "gpu/host/kernels/simd.hpp"
//
#include "gpu/host/kernels/attention.hpp"
#include "gpu/host/kernels/elementwise.hpp"
#include "gpu/host/kernels/products.hpp"

}  // namespace

const kernel_set set{MOONCAF_ISA, quantize, matmul_packed,  matmul_plain, rms_norm,
                     swiglu,      geglu,    clamped_swiglu, add,          soft_cap,
                     rope,        to_half,  to_int8,        to_int4,      attention};

}  // namespace mooncaf::MOONCAF_KERNELS
