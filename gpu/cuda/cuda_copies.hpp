#pragma once
// Copies of KV between a GPU and the host.

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "gpu/checked_copies.hpp"
#include "gpu/copy_queue.hpp"
#include "gpu/cuda/device_array.hpp"
#include "gpu/cuda/kernel_params.hpp"

namespace mooncaf::cuda {

/// The host's memory that kernels of a GPU reach. @thread Safe.
class pinned_memory {
 public:
  explicit pinned_memory(accelerator& gpu) : gpu_(gpu) {}
  ~pinned_memory();
  pinned_memory(const pinned_memory&) = delete;
  pinned_memory& operator=(const pinned_memory&) = delete;

  /// @error as `accelerator::pin`.
  result<void> add(std::span<std::byte> memory, std::shared_ptr<const void> owner);
  /// Where the GPU finds `bytes` at `host`; null if they are not all in memory that was added.
  std::byte* find(const std::byte* host, std::size_t bytes) const;

 private:
  struct range {
    std::size_t bytes;
    std::byte* there;
    std::shared_ptr<const void> owner;
  };
  accelerator& gpu_;
  mutable std::mutex mutex_;
  std::map<std::byte*, range> ranges_;
};

/// Parameters of a checksum without its blocks: the secret of XXH3 as the kernel reads it.
checksum_params checksum_secrets();

/// Copies on a stream of their own: large pieces by the GPU's copy engines, lists of small ones by one launch
/// of a kernel that reads and writes the host's memory itself, where that is pinned.
class cuda_copies final : public copy_queue, public checked_copies {
 public:
  /// @param blocks  of threads that a kernel may have: processors that copying takes from computing
  cuda_copies(accelerator& gpu, const pinned_memory& pinned, unsigned blocks)
      : stream_(gpu.make_stream(0)),
        pinned_(pinned),
        blocks_(blocks),
        rooms_{gpu, {}},
        table_(rooms_),
        gathered_(rooms_),
        pages_(rooms_),
        sums_(rooms_) {}

  void load(std::span<const kv_copy> copies) override;
  void store(std::span<const kv_copy> copies) override;
  void wait(const event_ptr& e) override { stream_->wait(e); }
  event_ptr record() override { return stream_->record(); }
  bool store_checked(std::span<const device_bytes> blocks, std::span<std::byte* const> pages,
                     const kv_layout& layout, std::span<std::uint64_t> sums) override;

 private:
  bool carries(std::span<const kv_copy> copies, bool to_device);

  std::unique_ptr<stream> stream_;
  const pinned_memory& pinned_;
  const unsigned blocks_;
  const room_source rooms_;
  std::vector<piece_move> moves_;
  device_table<piece_move> table_;
  std::vector<const std::byte*> from_;
  std::vector<std::byte*> to_;
  device_table<const std::byte*> gathered_;
  device_table<std::byte*> pages_;
  device_room<std::uint64_t> sums_;
};

}  // namespace mooncaf::cuda
