#pragma once
// A connection between two processes of a host whose bytes go through memory that both have mapped: no system
// call as long as neither sleeps. The socket over which they met stays: a byte on it wakes a sleeping end,
// and its end is the connection's end.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "transport/net/link_stream.hpp"

namespace mooncaf {

/// One direction. Each number has one writer, which believes its own copy of it alone.
struct byte_ring {
  static constexpr std::size_t capacity = 256 * 1024;  // power of two

  alignas(64) std::atomic<std::uint64_t> head;  ///< bytes ever written
  alignas(64) std::atomic<std::uint64_t> tail;  ///< bytes ever read
  /// The reader sleeps until so many bytes are unread; zero: it is awake. The writer that wakes it sets zero.
  alignas(64) std::atomic<std::uint64_t> wake_at;
  std::atomic<std::uint32_t> wants_room;  ///< the writer is to be woken when something was read
  alignas(64) std::byte data[capacity];
};

struct ring_pair {
  byte_ring to_maker, from_maker;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Sent bytes outlive the sender: the reader finds all of them before it believes that the other end is
/// gone. The other end may write anything into the memory at any time: numbers are checked each time they are
/// used, a wrong one breaks the connection, and bytes are copied out before they are parsed.
/// @thread  as for `link_stream`; `settle` and `woken` by the receiving one
class ring_stream final : public link_stream {
 public:
  enum class side : std::uint8_t { maker, guest };
  struct made {
    std::unique_ptr<ring_stream> stream;
    unique_fd memory;  ///< for the other end; sealed, so that no process can cut it short
  };

  /// @param beside  a Unix socket on which nothing is under way any more. @error `ec::io_error`; `beside` is
  /// still there.
  static result<made> make(std::unique_ptr<link_stream>& beside);
  /// The other end. @param memory  from `make`. @error `ec::invalid_argument`, `ec::io_error`
  static result<std::unique_ptr<ring_stream>> join(std::unique_ptr<link_stream>& beside, int memory);
  ring_stream(std::unique_ptr<link_stream> beside, std::shared_ptr<ring_pair> memory, side of);

  passed send(std::span<const std::byte> bytes) override;
  passed receive(std::span<std::byte> into) override;
  std::string why() const override;
  int fd() const noexcept override { return beside_->fd(); }
  /// A byte on the socket tells of room, too: the stream is polled for POLLIN whatever is wanted.
  short events(short /*wanted*/) const override { return POLLIN; }
  bool pending() const override { return in_.head.load(std::memory_order_acquire) != read_; }
  bool arrived() const override { return pending(); }
  void wake_from(std::size_t bytes) override { wake_at_ = bytes; }
  bool settle() override;
  void woken(bool told) override;
  void wake() override;
  void shutdown() noexcept override { beside_->shutdown(); }

 private:
  std::uint64_t unread() const;
  passed broken();
  void ring_bell();

  std::unique_ptr<link_stream> beside_;
  std::shared_ptr<ring_pair> memory_;
  byte_ring& in_;
  byte_ring& out_;
  std::uint64_t written_ = 0, read_ = 0;  ///< this end's own copies; the ones in the memory may be forged
  std::size_t wake_at_ = 1;
  std::atomic<bool> over_{false};      ///< the socket has ended
  std::atomic<bool> nonsense_{false};  ///< the memory holds numbers that cannot be
};

}  // namespace mooncaf
