#define MOONCAF_KERNELS kernels_avx512
#define MOONCAF_ISA "avx512-vnni"
#include "gpu/host/kernels/kernel_set.hpp"

namespace mooncaf {

const kernel_set& avx512_kernels() noexcept { return kernels_avx512::set; }

}  // namespace mooncaf
