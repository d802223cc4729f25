#pragma once
// Touches memory ahead of need: the first touch of a page costs the kernel more than the copy into it.

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>

namespace mooncaf {

/// Fills a mapping's page table, from its start, on a thread that ends when it is through.
/// @thread  construction and destruction only
class page_filler {
 public:
  /// @param bytes  of a shared mapping; they do not change. Must outlive the object.
  explicit page_filler(std::span<std::byte> bytes);
  ~page_filler();  ///< leaves the rest as it is

 private:
  void fill(std::span<std::byte> bytes);

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace mooncaf
