#pragma once
// Memory whose addresses can be followed through its `open` alone.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// A device's memory, as far from the host as one of a graphics card is: the addresses that it gives out lie
/// in a range without any access, so that following one is a segmentation fault, and the bytes behind them
/// are mapped elsewhere for the device alone.
/// @thread  Safe.
class sealed_memory {
 public:
  /// @param capacity_bytes  of address range; memory is taken as it is first written.
  /// @error `ec::out_of_space` if the system gives no such range.
  static result<std::unique_ptr<sealed_memory>> make(std::size_t capacity_bytes);
  ~sealed_memory();
  sealed_memory(const sealed_memory&) = delete;
  sealed_memory& operator=(const sealed_memory&) = delete;

  /// Whole pages, zeroed. @error `ec::out_of_space` names the bytes that were asked for and those there are.
  result<std::byte*> allocate(std::size_t bytes);
  /// Gives back memory that `allocate(bytes)` returned, and its pages to the system.
  void release(std::byte* sealed, std::size_t bytes) noexcept;

  /// The address at which the device finds a sealed one's bytes; null stays null.
  template <class T>
  T* open(T* sealed) const noexcept {
    if (sealed == nullptr) return nullptr;
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(sealed) + distance_);
  }

 private:
  sealed_memory() = default;

  std::size_t capacity_ = 0;
  int file_ = -1;
  std::byte* sealed_ = nullptr;
  std::byte* open_ = nullptr;
  std::uintptr_t distance_ = 0;  ///< from a sealed address to the open one, modulo 2^64
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  ///< offset to bytes; neighbours are joined
};

}  // namespace mooncaf
