#pragma once
// Moves bytes between this process and segments on other hosts over the data plane: straight from and into
// the caller's memory over TCP, which has to know of it alone; through a staging buffer where a NIC would
// have to, and where there is little to move, or much in small pieces.

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
  static result<std::unique_ptr<remote_mover>> start(const key_ring& secret, std::uint64_t staging_bytes);

  struct place {
    node_id node;
    region_id region;
    std::uint64_t offset = 0;
  };
  result<void> add_peer(const announcement& peer);
  /// Whether RDMA may move the bytes.
  bool has_nic() const noexcept { return has_nic_; }
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
  class registered;
  using parts = std::deque<std::unique_ptr<part>>;
  remote_mover(arena staging, std::uint64_t step)
      : staging_(std::move(staging)), space_(staging_.size_bytes()), step_(step) {}
  template <class Byte>
  bool register_pieces(registered& all, std::span<const std::span<Byte>> pieces) const;
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
  region_id region_;
  bool has_nic_ = false;
  std::unique_ptr<data_plane> plane_;
};

}  // namespace mooncaf
