#define MOONCAF_KERNELS kernels_portable
#define MOONCAF_ISA "portable"
#include "gpu/host/kernels/kernel_set.hpp"

namespace mooncaf {

const kernel_set& portable_kernels() noexcept { return kernels_portable::set; }

}  // namespace mooncaf
