#pragma once
// A CUDA device as the code that launches on it sees it: memory, streams, kernels by number. The driver
// implements it (cuda_driver.cpp), and so does the harness of the tests, so that both run the same launches
// of the same kernels.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "gpu/copy_queue.hpp"
#include "gpu/cuda/kernel_list.hpp"
#include "gpu/device_failure.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf::cuda {

struct grid {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

/// A launch, with parameters that its maker keeps.
struct launch_view {
  kernel which;
  grid blocks;
  const void* params;
};

/// Launches that a stream takes as one.
class launch_graph {
 public:
  virtual ~launch_graph() = default;
  /// The i-th launch has these parameters from its next run on. Kernel and grid are as they were.
  /// @throws device_failure.
  virtual void change(std::size_t i, const launch_view& to) = 0;
};

/// Work in order. Calls return before their work is done. @throws device_failure. @thread  One at a time.
class stream {
 public:
  virtual ~stream() = default;
  /// @param params  the kernel's parameters, read before the call returns
  virtual void launch(kernel which, grid blocks, const void* params) = 0;
  /// Makes one of launches, each of which is to begin after the one before it.
  /// @returns null where there is no such thing, or no memory for it.
  virtual std::unique_ptr<launch_graph> keep(std::span<const launch_view> launches) = 0;
  virtual void launch(launch_graph& graph) = 0;
  /// @param from  host memory, read before the call returns
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
  /// Host memory that must live, and be left alone, until the work is done.
  virtual void upload(std::byte* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void load(const kv_copy& copy) = 0;
  virtual void store(const kv_copy& copy) = 0;
  /// Later work of this stream begins after `e`, which may be another stream's, or another device's.
  virtual void wait(const event_ptr& e) = 0;
  virtual event_ptr record() = 0;
  virtual void synchronize() = 0;
};

struct accelerator_info {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  std::string isa;   ///< "sm_90"
  std::size_t memory_bytes = 0;
  unsigned processors = 1;  ///< blocks of threads that run side by side at least
};

/// @thread  Safe. Outlives its streams and memory.
class accelerator {
 public:
  virtual ~accelerator() = default;
  virtual accelerator_info info() const = 0;
  /// @error `ec::out_of_space`; `ec::unavailable` if the device has failed.
  virtual result<std::byte*> allocate(std::size_t bytes) = 0;
  /// Waits until nothing uses it.
  virtual void release(std::byte* memory) noexcept = 0;
  /// Memory of the host that kernels can reach, and copies without a stop. @returns its device address.
  /// @error `ec::out_of_space`, `ec::unavailable`.
  virtual result<std::byte*> pin(std::span<std::byte> memory) = 0;
  /// Nothing uses it any longer.
  virtual void unpin(std::byte* memory) noexcept = 0;
  /// @param priority  lower goes first where two streams could run
  virtual std::unique_ptr<stream> make_stream(int priority) = 0;
};

}  // namespace mooncaf::cuda
