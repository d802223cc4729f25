#pragma once
// A CUDA device without a GPU: its launches run on the machine of this folder.

#include <memory>

#include "gpu/cuda/accelerator.hpp"

namespace mooncaf::simt {

/// @param processors  what launches believe the device has
std::unique_ptr<cuda::accelerator> make_simt_accelerator(unsigned processors = 4,
                                                         std::size_t memory_bytes = std::size_t{256} << 20);

}  // namespace mooncaf::simt
