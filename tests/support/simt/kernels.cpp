// The kernels of the product as functions, each access of theirs a call (see CMakeLists.txt).

#include "gpu/cuda/kernels.cu"

#include "tests/support/simt/kernel_functions.hpp"

namespace mooncaf::simt {

kernel_entry_fn kernel_function(cuda::kernel which) {
  static constexpr kernel_entry_fn table[] = {
#define MOONCAF_CALL(NAME, PARAMS, THREADS) \
  [](const void* params) { mooncaf_##NAME(*static_cast<const cuda::PARAMS*>(params)); },
      MOONCAF_CUDA_KERNELS(MOONCAF_CALL)
#undef MOONCAF_CALL
  };
  return table[static_cast<unsigned>(which)];
}

}  // namespace mooncaf::simt
