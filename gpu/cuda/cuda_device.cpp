#include "gpu/cuda/cuda_device.hpp"

#include <algorithm>
#include <mutex>
#include <thread>

#include "gpu/cuda/cuda_copies.hpp"
#include "gpu/cuda/cuda_queue.hpp"
#include "gpu/cuda/cuda_weight.hpp"
#include "gpu/host/thread_pool.hpp"

namespace mooncaf {

namespace cuda {

namespace {

class cuda_buffer final : public buffer {
 public:
  cuda_buffer(device_memory memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  float* data() noexcept override { return reinterpret_cast<float*>(memory_.at()); }
  std::size_t size_bytes() const noexcept override { return bytes_; }

 private:
  device_memory memory_;
  std::size_t bytes_;
};

class cuda_device final : public device {
 public:
  cuda_device(std::unique_ptr<accelerator> gpu, unsigned threads, unsigned copy_processors)
      : gpu_(std::move(gpu)),
        copy_processors_(copy_processors),
        pinned_(*gpu_),
        pool_(threads),
        loader_(*gpu_, pool_) {}

  device_info info() const override {
    const auto gpu = gpu_->info();
    device_info out;
    out.name = "cuda " + gpu.name + ", " + gpu.isa + ", " + std::to_string(gpu.processors) + " processors";
    out.isa = gpu.isa;
    out.threads = gpu.processors;
    out.memory_bytes = gpu.memory_bytes;
    out.host_memory = out.host_buffers = false;
    out.longest_head = longest_head;
    return out;
  }

  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    const std::lock_guard lock{load_mutex_};
    try {
      return loader_.load(type, rows, cols, data);
    } catch (const device_failure& f) {
      return fail(ec::unavailable, f.what());
    }
  }

  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override {
    auto memory = device_memory::make(*gpu_, std::max<std::size_t>(bytes, 1));
    if (!memory) return fail(memory.error());
    return std::make_unique<cuda_buffer>(std::move(*memory), bytes);
  }

  /// The first queue comes behind the weights.
  std::unique_ptr<compute_queue> make_queue(int priority) override {
    const std::lock_guard lock{load_mutex_};
    loader_.rest();
    return std::make_unique<cuda_queue>(*gpu_, priority);
  }
  result<void> pin(std::span<std::byte> memory, std::shared_ptr<const void> owner) override {
    return pinned_.add(memory, std::move(owner));
  }
  std::unique_ptr<copy_queue> make_copy_queue() override {
    return std::make_unique<cuda_copies>(*gpu_, pinned_, copy_processors_);
  }

 private:
  std::unique_ptr<accelerator> gpu_;
  const unsigned copy_processors_;
  pinned_memory pinned_;
  std::mutex load_mutex_;  ///< the pool and the loader are for one matrix at a time
  thread_pool pool_;
  weight_loader loader_;
};

}  // namespace

std::unique_ptr<device> make_device(std::unique_ptr<accelerator> gpu, unsigned threads,
                                    unsigned copy_processors) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  return std::make_unique<cuda_device>(std::move(gpu), threads, copy_processors);
}

}  // namespace cuda

result<std::unique_ptr<device>> make_cuda_device(const cuda_device_options& options) {
  auto gpu = cuda::open_cuda_driver(options.ordinal);
  if (!gpu) return fail(gpu.error());
  return cuda::make_device(std::move(*gpu), options.threads, options.copy_processors);
}

}  // namespace mooncaf
