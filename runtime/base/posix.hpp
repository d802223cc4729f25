#pragma once
// The two bits of POSIX that several rooms need: a descriptor that closes itself, and errno in words.

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace mooncaf {

/// Owns a file descriptor; -1 means none. Move-only.
class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_(fd) {}
  unique_fd(unique_fd&& other) noexcept : fd_(other.release()) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  unique_fd(const unique_fd&) = delete;
  unique_fd& operator=(const unique_fd&) = delete;
  ~unique_fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Gives the descriptor away without closing it.
  int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes its descriptor and owns `fd` from now on.
  void reset(int fd = -1) noexcept {
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

/// errno as text, e.g. "No such file or directory (errno 2)". Thread-safe.
inline std::string errno_text(int code = errno) {
  return std::generic_category().message(code) + " (errno " + std::to_string(code) + ")";
}

}  // namespace mooncaf
