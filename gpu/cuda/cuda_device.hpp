#pragma once
// NVIDIA GPUs as devices.

#include <memory>

#include "gpu/cuda/accelerator.hpp"
#include "gpu/device.hpp"

namespace mooncaf {

struct cuda_device_options {
  unsigned ordinal = 0;          ///< which of the driver's GPUs
  unsigned threads = 0;          ///< that pack weights; 0: one per core
  unsigned copy_processors = 2;  ///< that a list of small copies takes from computing, at most
};

/// @error `ec::unsupported`: no CUDA in this build, no driver, or one that is too old or does not know the
/// kernels' form; `ec::not_found`: no such GPU; `ec::unavailable`: it does not answer.
result<std::unique_ptr<device>> make_cuda_device(const cuda_device_options& options);

namespace cuda {

/// A device over anything that runs the kernels.
std::unique_ptr<device> make_device(std::unique_ptr<accelerator> gpu, unsigned threads,
                                    unsigned copy_processors = 2);

/// The driver's GPU. Opened when called for: nothing links against CUDA. @error as `make_cuda_device`.
result<std::unique_ptr<accelerator>> open_cuda_driver(unsigned ordinal);

}  // namespace cuda
}  // namespace mooncaf
