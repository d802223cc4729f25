#pragma once
// The kernels as the driver takes them.

namespace mooncaf::cuda {

/// Every kernel for every architecture (gpu/CMakeLists.txt), as nvcc made it.
const void* fat_binary() noexcept;

}  // namespace mooncaf::cuda
