// A build without CUDA: it has no kernels to launch.

#include "gpu/cuda/cuda_device.hpp"

namespace mooncaf::cuda {

result<std::unique_ptr<accelerator>> open_cuda_driver(unsigned) {
  return fail(ec::unsupported, "this build has no CUDA: it was made where nvcc was not found");
}

}  // namespace mooncaf::cuda
