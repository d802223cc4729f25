#pragma once
// Memory of a device and its owners: allocations, room that grows, tables of the host's.

#include <cstdint>
#include <cstring>
#include <functional>
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

/// Gives rooms and tables their memory, and knows of launches that their owner keeps and that read it.
struct room_source {
  accelerator& gpu;
  /// Hands over the launches that were kept: they read memory that is about to be given back.
  std::function<void()> before_growth;
  bool keeps = false;       ///< launches are kept at present
  std::uint64_t batch = 0;  ///< grows when all kept launches are handed over, and none is being prepared
};

/// Room that grows when more is asked for, and loses its contents when it does.
template <class T>
class device_room {
 public:
  explicit device_room(const room_source& from) : from_(&from) {}

  /// @throws device_failure if the device has no more memory.
  T* of(std::size_t count) {
    if (count > count_) {
      if (from_->before_growth) from_->before_growth();
      memory_ = {};
      count_ = 0;
      auto made = device_memory::make(from_->gpu, count * sizeof(T));
      if (!made)
        throw device_failure("scratch memory: " + to_string(made.error()),
                             made.error().code != ec::out_of_space);
      memory_ = std::move(*made);
      count_ = count;
    }
    return reinterpret_cast<T*>(memory_.at());
  }

 private:
  const room_source* from_;
  device_memory memory_;
  std::size_t count_ = 0;
};

/// A table of the host's that kernels read. Layers of a pass name the same one again and again; it travels
/// once. A table that kept launches read stays until they are handed over: their next table gets another
/// place, and the same one whenever they are kept again.
template <class T>
class device_table {
 public:
  explicit device_table(const room_source& from) : from_(&from) {}

  const T* put(stream& on, std::span<const T> values) {
    if (!from_->keeps || batch_ != from_->batch) used_ = 0;
    batch_ = from_->batch;
    for (std::size_t i = 0; i < used_; ++i) {
      if (places_[i].holds(values)) return places_[i].room.of(values.size());
    }
    if (used_ == places_.size()) places_.push_back({device_room<T>{*from_}, {}, false});
    auto& free = places_[used_];
    T* const at = free.room.of(values.size());
    if (from_->keeps) used_ += 1;
    if (free.holds(values)) return at;
    on.write(reinterpret_cast<std::byte*>(at), values.data(), values.size_bytes());
    free.held.assign(values.begin(), values.end());
    free.filled = true;
    return at;
  }

 private:
  struct place {
    device_room<T> room;
    std::vector<T> held;
    bool filled = false;
    bool holds(std::span<const T> values) const {
      return filled && held.size() == values.size() &&
             std::memcmp(held.data(), values.data(), values.size_bytes()) == 0;
    }
  };
  const room_source* from_;
  std::vector<place> places_;
  std::size_t used_ = 0;
  std::uint64_t batch_ = 0;
};

}  // namespace mooncaf::cuda
