#pragma once
// Memory of an NVIDIA GPU as a dma-buf, which a NIC can register. The driver is opened when asked for:
// nothing links against CUDA, and a build without its headers says that it has none.

#include <cstdint>
#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// A dma-buf. The caller owns the descriptor and closes it; the memory must stay allocated while a NIC uses
/// it.
struct exported_memory {
  int descriptor = -1;
  std::uint64_t offset = 0;  ///< where in the dma-buf the address lies: exports begin at a page
};

/// @param address  a `CUdeviceptr` of this process
/// @param length   bytes, more than 0; the allocation must cover the host's pages that the range touches
/// @error `ec::unsupported`: no CUDA in this build or on this host, or a GPU or driver without dma-buf
/// (before CUDA
///        11.7, or not the open kernel modules); `ec::invalid_argument`: an address that is no device memory.
/// @thread  any
result<exported_memory> export_dma_buf(std::uint64_t address, std::uint64_t length);

/// For people: "dma-buf of 2 GPUs, CUDA driver 12.4". @error `ec::unsupported` with the reason.
result<std::string> describe_dma_buf_support();

}  // namespace mooncaf
