#pragma once
// Copies blocks of a device to the host's pages, with their checksums.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/checked_copies.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/device_kv.hpp"

namespace mooncaf {

/// @thread  One call at a time, on a thread that may wait for the device.
class page_writer {
 public:
  page_writer(device& hardware, std::shared_ptr<device_kv> kv);

  /// Waits until the pages hold the blocks, `pages.size()` of each.
  /// @returns a checksum of every page. @error `ec::unavailable`: the device failed, and writes to none of
  /// the pages any more, which may hold anything.
  result<std::vector<std::uint64_t>> write(std::span<const kv_residency::write::item> blocks,
                                           std::span<std::byte* const> pages);

 private:
  std::vector<std::uint64_t> copy(std::span<const kv_residency::write::item> blocks,
                                  std::span<std::byte* const> pages);

  const std::shared_ptr<device_kv> kv_;
  const std::shared_ptr<copy_queue> queue_;
  checked_copies* checked_ = nullptr;  ///< the queue, where it computes checksums on the way
};

}  // namespace mooncaf
