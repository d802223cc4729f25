// In place of dma_buf.cpp where CUDA's headers were not found.

#include "gpu/cuda/dma_buf.hpp"

namespace mooncaf {

result<exported_memory> export_dma_buf(std::uint64_t, std::uint64_t) {
  return fail(ec::unsupported, "this build has no CUDA: its headers were not found");
}

result<std::string> describe_dma_buf_support() {
  return fail(ec::unsupported, "this build has no CUDA: its headers were not found");
}

}  // namespace mooncaf
