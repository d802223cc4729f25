#pragma once
// KV pages in another node's memory, and copies between them and this process.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "gpu/device.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// Addresses that stand for a region of a peer: nothing lies there, and touching them ends the process.
class far_pages {
 public:
  /// @param ids  the next id of a transfer of this node. @error `ec::out_of_space`
  static result<std::shared_ptr<far_pages>> make(data_plane& plane,
                                                 std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                 node_id owner, const region_desc& region);
  ~far_pages();
  far_pages(const far_pages&) = delete;
  far_pages& operator=(const far_pages&) = delete;

  std::byte* base() const noexcept { return base_; }
  node_id owner() const noexcept { return owner_; }

  /// Memory of this process that copies begin and end in. @param fd  through which others on this host may map it; -1: they
  /// may not. @returns its region, to be given back by `leave`.
  result<region_id> join(std::span<std::byte> own, int fd = -1);
  void leave(std::span<std::byte> own);

  /// Starts copies; `done` is called once, on any thread, with the first error.
  void copy(transfer_op op, std::span<const kv_copy> copies, std::function<void(const result<void>&)> done);

 private:
  far_pages() = default;
  struct part {
    std::size_t bytes = 0;
    region_id region;
  };
  /// @pre the bytes lie in memory that has joined.
  slice own_slice(const std::byte* at, std::size_t bytes) const;

  data_plane* plane_ = nullptr;
  std::shared_ptr<std::atomic<std::uint64_t>> ids_;
  node_id owner_;
  region_id region_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  mutable std::mutex mutex_;
  std::map<const std::byte*, part> own_;
};

/// The inner device with KV in memory of its own, between which and `pages` it has to be copied.
/// Failed copies are a `device_failure` of whoever waits for them. @param inner  outlives it, and is the host's.
std::unique_ptr<device> make_far_device(device& inner, std::shared_ptr<far_pages> pages);

}  // namespace mooncaf
