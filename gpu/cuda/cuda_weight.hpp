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

/// Sends matrices, packed on the way: while the threads of a pool pack some rows into one piece of the host's
/// memory, the device fetches the rows before them from another. Both are pinned where the driver allows it.
/// @thread  One at a time.
class weight_loader {
 public:
  weight_loader(accelerator& gpu, thread_pool& pool);
  ~weight_loader();
  weight_loader(const weight_loader&) = delete;
  weight_loader& operator=(const weight_loader&) = delete;

  /// @error as `device::load_weight`; `ec::out_of_space` of the device. @throws device_failure
  result<std::unique_ptr<weight>> load(ggml_type type, std::size_t rows, std::size_t cols,
                                       std::span<const std::byte> data);
  /// Gives the host's memory back until the next load.
  void rest();

 private:
  struct piece {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    bool pinned = false;
    event_ptr fetched;
  };
  /// The next piece, once the device has fetched its rows.
  std::byte* take(std::size_t bytes);

  accelerator& gpu_;
  thread_pool& pool_;
  std::unique_ptr<stream> stream_;
  piece pieces_[2];
  unsigned at_ = 0;
};

}  // namespace mooncaf::cuda
