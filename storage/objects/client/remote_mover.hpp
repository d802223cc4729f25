#pragma once
// Moves bytes between this process and segments on other hosts over the data plane: straight from and into
// the caller's memory over TCP, which has to know of it alone, and over a NIC where the caller has registered
// it; else, and where there is little to move, or much in small pieces, through a staging buffer.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/arena.hpp"
#include "storage/objects/client/registered_memory.hpp"
#include "storage/offset_allocator.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// Bytes of all pieces of a value.
template <class Byte>
std::uint64_t size_of(std::span<const std::span<Byte>> pieces) {
  std::uint64_t n = 0;
  for (const auto& p : pieces) n += p.size();
  return n;
}

/// @thread  All functions may be called from any thread.
class remote_mover {
 public:
  /// @param staging_bytes  at least 64 KiB; all transfers under way share it.
  /// @param registered  the callers' buffers, each of which a NIC learns when it is first used. Null: none.
  static result<std::unique_ptr<remote_mover>> start(
      const key_ring& secret, std::uint64_t staging_bytes,
      std::shared_ptr<const registered_memory> registered = nullptr);

  struct place {
    node_id node;
    region_id region;
    std::uint64_t offset = 0;
  };
  result<void> add_peer(const announcement& peer);
  /// Whether RDMA may move the bytes.
  bool has_nic() const noexcept { return has_nic_; }
  /// Bytes so far that went through the staging buffer.
  std::uint64_t staged_bytes() const noexcept { return staged_bytes_.load(std::memory_order_relaxed); }
  /// Bytes to be written somewhere, and the outcome.
  struct order {
    place to;
    std::span<const std::span<const std::byte>> pieces;
    result<std::uint64_t> sum{0};  ///< xxh3-64 of all bytes
    bool settled = true;           ///< false: the bytes may still land later
  };
  /// Many small ones for one node travel as one transfer.
  void write(std::span<order> orders);
  /// @returns xxh3-64 of all bytes.
  result<std::uint64_t> read(const place& from, std::span<const std::span<std::byte>> pieces);

 private:
  struct part;
  struct known_buffer;
  class known_pieces;
  using parts = std::deque<std::unique_ptr<part>>;
  remote_mover(arena staging, std::uint64_t step, std::shared_ptr<const registered_memory> registered)
      : staging_(std::move(staging)),
        space_(staging_.size_bytes()),
        step_(step),
        registered_(std::move(registered)) {}
  template <class Byte>
  bool go_straight(known_pieces& known, std::span<const std::span<Byte>> pieces) const;
  bool stage(part& p);
  void submit(part& p, transfer_op op, node_id peer);
  template <class Take>
  void end_one(parts& under_way, const Take& take);
  template <class Take>
  part& begin(parts& under_way, std::uint64_t bytes, bool staged, const Take& take);
  void write_large(order& o);
  void write_small(std::span<order> orders, parts& under_way);

  arena staging_;
  std::mutex mutex_;
  std::condition_variable room_;
  offset_allocator space_;
  std::uint64_t step_;
  std::uint64_t next_transfer_ = 1;
  std::atomic<std::uint64_t> staged_bytes_{0};
  region_id region_;
  bool has_nic_ = false;
  std::shared_ptr<const registered_memory> registered_;
  std::shared_ptr<data_plane> plane_;
};

}  // namespace mooncaf
