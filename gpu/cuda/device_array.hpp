#pragma once
// Memory of a device that belongs to somebody.

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cuda/accelerator.hpp"

namespace mooncaf::cuda {

/// An allocation that is given back when its owner goes.
class device_memory {
 public:
  device_memory() = default;
  device_memory(accelerator& gpu, std::byte* at) : gpu_(&gpu), at_(at) {}
  device_memory(device_memory&& other) noexcept
      : gpu_(std::exchange(other.gpu_, nullptr)), at_(std::exchange(other.at_, nullptr)) {}
  device_memory& operator=(device_memory&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~device_memory() {
    if (gpu_ != nullptr) gpu_->release(at_);
  }
  std::byte* at() const noexcept { return at_; }

  /// @error as `accelerator::allocate`.
  static result<device_memory> make(accelerator& gpu, std::size_t bytes) {
    const auto at = gpu.allocate(bytes);
    if (!at) return fail(at.error());
    return device_memory{gpu, *at};
  }

 private:
  accelerator* gpu_ = nullptr;
  std::byte* at_ = nullptr;
};

/// Room that grows with what it is asked for, and forgets what it held when it does.
template <class T>
class device_room {
 public:
  explicit device_room(accelerator& gpu) : gpu_(gpu) {}

  /// @throws device_failure if the device has no more memory.
  T* of(std::size_t count) {
    if (count > count_) {
      memory_ = {};
      auto made = device_memory::make(gpu_, count * sizeof(T));
      if (!made) throw device_failure("scratch memory: " + to_string(made.error()));
      memory_ = std::move(*made);
      count_ = count;
    }
    return reinterpret_cast<T*>(memory_.at());
  }

 private:
  accelerator& gpu_;
  device_memory memory_;
  std::size_t count_ = 0;
};

/// A table of the host's that kernels read. Layers of a pass name the same one again and again; it travels
/// once.
template <class T>
class device_table {
 public:
  explicit device_table(accelerator& gpu) : room_(gpu) {}

  const T* put(stream& on, std::span<const T> values) {
    T* at = room_.of(values.size());
    if (held_.size() == values.size() && std::memcmp(held_.data(), values.data(), values.size_bytes()) == 0)
      return at;
    on.write(reinterpret_cast<std::byte*>(at), values.data(), values.size_bytes());
    held_.assign(values.begin(), values.end());
    return at;
  }

 private:
  device_room<T> room_;
  std::vector<T> held_;
};

}  // namespace mooncaf::cuda
