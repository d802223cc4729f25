#pragma once
// The bytes between two processes, each way in order, whatever carries them.

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/posix.hpp"

namespace mooncaf {

/// One end of a connection. No call waits: a caller that has to wait calls `settle`, polls `fd()` for
/// `events(…)` if that is true, and calls `woken`.
/// @thread  One may send while another receives; else not synchronised. `shutdown`: any.
class link_stream {
 public:
  enum class state : std::uint8_t {
    ok,      ///< some bytes went through
    again,   ///< none for now
    closed,  ///< the other end sends no more, and all that it sent has been received
    broken,  ///< see `why`
  };
  struct passed {
    state at = state::ok;
    std::size_t bytes = 0;
  };

  virtual ~link_stream() = default;
  link_stream(const link_stream&) = delete;
  link_stream& operator=(const link_stream&) = delete;

  /// Bytes that it says `ok` to reach the other end though this process dies, or wait for it in memory that
  /// outlives this process.
  virtual passed send(std::span<const std::byte> bytes) = 0;
  virtual passed receive(std::span<std::byte> into) = 0;
  /// The cause of the break, for a person. @thread  one that was told `broken`
  virtual std::string why() const = 0;

  /// To be polled, by poll(2) or a level-triggered epoll(7).
  virtual int fd() const noexcept = 0;
  /// @param wanted  POLLIN, to receive, POLLOUT, to send, or both. @returns the events to poll `fd()` for.
  virtual short events(short wanted) const { return wanted; }
  /// Bytes have come that `fd()` need not tell of. @thread  the receiving one
  virtual bool pending() const { return false; }
  /// `receive` would not say `again`. Asked again and again by a thread that looks before it sleeps.
  /// @thread  the receiving one
  virtual bool arrived() const {
    ::pollfd one{fd(), POLLIN, 0};
    return pending() || ::poll(&one, 1, 0) > 0;
  }
  /// A thread that sleeps at `fd()` need not be woken before so many bytes have come, unless the other end
  /// calls `wake`. This is a hint: it may be woken earlier. @thread  the receiving one
  virtual void wake_from(std::size_t /*bytes*/) {}
  /// The caller is about to sleep there. @returns false if bytes have come already.
  virtual bool settle() { return !pending(); }
  /// The caller does not sleep any more, or did not begin. @param told  `fd()` had something to tell.
  virtual void woken(bool /*told*/) {}
  /// Wakes the other end, however little it was sent, where the stream does not do so by itself.
  /// @thread  the sending one
  virtual void wake() {}

  /// Ends both directions; the descriptor stays open until the object goes.
  virtual void shutdown() noexcept = 0;

 protected:
  link_stream() = default;
};

/// A connected socket, TCP or Unix, that does not block.
class socket_stream final : public link_stream {
 public:
  explicit socket_stream(unique_fd fd) : fd_(std::move(fd)) {}

  passed send(std::span<const std::byte> bytes) override;
  passed receive(std::span<std::byte> into) override;
  std::string why() const override;
  int fd() const noexcept override { return fd_.get(); }
  void wake_from(std::size_t bytes) override;
  void shutdown() noexcept override;

 private:
  passed failed(int why);

  unique_fd fd_;
  std::atomic<int> broke_{0};
};

}  // namespace mooncaf
