#pragma once
// Weights in a CUDA device's memory: packed as kernel_params.hpp says.

#include "gpu/cuda/device_array.hpp"
#include "gpu/device.hpp"

namespace mooncaf {
class thread_pool;
}

namespace mooncaf::cuda {

class cuda_weight final : public weight {
 public:
  cuda_weight(device_memory memory, const weight_view& view, std::size_t cols)
      : memory_(std::move(memory)), view_(view), cols_(cols) {}
  std::size_t rows() const noexcept override { return view_.rows; }
  std::size_t cols() const noexcept override { return cols_; }
  const weight_view& view() const noexcept { return view_; }

 private:
  device_memory memory_;
  weight_view view_;
  std::size_t cols_;
};

/// Packs a matrix on the host and sends it.
/// @param pool  used by nobody else meanwhile
/// @error as `device::load_weight`; `ec::out_of_space` of the device.
result<std::unique_ptr<weight>> load_cuda_weight(accelerator& gpu, stream& on, thread_pool& pool,
                                                 ggml_type type, std::size_t rows, std::size_t cols,
                                                 std::span<const std::byte> data);

}  // namespace mooncaf::cuda
