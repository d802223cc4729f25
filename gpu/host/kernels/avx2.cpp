#define MOONCAF_KERNELS kernels_avx2
#define MOONCAF_ISA "avx2"
#include "gpu/host/kernels/kernel_set.hpp"

namespace mooncaf {

const kernel_set& avx2_kernels() noexcept { return kernels_avx2::set; }

}  // namespace mooncaf
