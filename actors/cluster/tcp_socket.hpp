#pragma once
// Sockets with limits: CAF's own connect waits as long as the kernel does.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Owns a file descriptor.
class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_(fd) {}
  unique_fd(unique_fd&& other) noexcept : fd_(other.release()) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~unique_fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

/// Connects to any address of `host`. The socket is non-blocking. Looking up a name has the resolver's own
/// limit.
/// @error `ec::peer_lost` nobody listens there, or no address; `ec::timed_out`
result<unique_fd> connect_tcp(const std::string& host, std::uint16_t port, time_point until);

enum class readiness : short { read, write };

/// Waits until a socket is ready, or has failed. @returns false at the limit.
bool wait_ready(int fd, readiness what, time_point until);

/// Whether every address of `host` is a loopback address. An empty host means all interfaces.
bool is_loopback(const std::string& host);

/// "127.0.0.1:4711" of the other end, for logs.
std::string peer_name(int fd);

}  // namespace mooncaf
