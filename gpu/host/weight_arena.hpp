#pragma once
// Memory of a host device's weights, in huge pages: a step reads all of them once, and with pages of 4 KiB the processor
// waits for their translations. A small model's matrices have less than a huge page each, so they share chunks.

#include <cstddef>
#include <memory>
#include <mutex>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// @thread  Safe.
class weight_arena {
 public:
  /// Zeroed bytes from the begin of a cache line on. A chunk is given back with the last weight in it, which may
  /// outlive the arena.
  /// @error  `ec::out_of_space`.
  result<std::shared_ptr<std::byte>> take(std::size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::byte> chunk_;  ///< the one that is being filled
  std::size_t size_ = 0, used_ = 0;
};

}  // namespace mooncaf
