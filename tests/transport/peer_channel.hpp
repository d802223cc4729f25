#pragma once
// Length-prefixed messages between a test and the node it started in another process; and that process.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mooncaf::test {

/// Blocking; an end of the channel reads as an empty message.
class peer_channel {
 public:
  explicit peer_channel(int fd) : fd_(fd) {}

  void send(std::span<const std::byte> message) const {
    const auto size = static_cast<std::uint32_t>(message.size());
    all(&size, sizeof(size), true);
    all(const_cast<std::byte*>(message.data()), message.size(), true);
  }
  void send(std::string_view text) const { send(std::as_bytes(std::span{text.data(), text.size()})); }
  /// An order: a letter and what it needs.
  template <class... Values>
  void order(char letter, Values... values) const {
    std::vector<std::byte> message{static_cast<std::byte>(letter)};
    const auto put = [&](const auto& v) {
      const auto* p = reinterpret_cast<const std::byte*>(&v);
      message.insert(message.end(), p, p + sizeof(v));
    };
    (put(values), ...);
    send(message);
  }
  std::vector<std::byte> receive() const {
    std::uint32_t size = 0;
    if (!all(&size, sizeof(size), false)) return {};
    std::vector<std::byte> message(size);
    if (!all(message.data(), size, false)) return {};
    return message;
  }
  std::string receive_text() const {
    const auto m = receive();
    return {reinterpret_cast<const char*>(m.data()), m.size()};
  }

 private:
  bool all(const void* data, std::size_t n, bool out) const {
    auto* p = static_cast<char*>(const_cast<void*>(data));
    while (n > 0) {
      const auto done = out ? ::send(fd_, p, n, MSG_NOSIGNAL) : ::recv(fd_, p, n, 0);
      if (done <= 0) return false;
      p += done;
      n -= static_cast<std::size_t>(done);
    }
    return true;
  }
  int fd_;
};

/// A `transport_peer` process; killed with the object.
class peer_process {
 public:
  peer_process(const std::string& binary, std::uint64_t node, std::size_t bytes, const std::string& path) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    const auto node_text = std::to_string(node);
    const auto bytes_text = std::to_string(bytes);
    pid_ = ::fork();
    if (pid_ == 0) {
      // dup2 clears close-on-exec, except onto itself.
      if (ends[1] == 3) ends[1] = ::dup(3);
      ::dup2(ends[1], 3);
      ::execl(binary.c_str(), binary.c_str(), node_text.c_str(), bytes_text.c_str(), path.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    fd_ = ends[0];
  }
  ~peer_process() {
    kill();
    ::close(fd_);
  }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;

  peer_channel channel() const { return peer_channel{fd_}; }
  /// SIGSTOP, and waits until it stands: threads that run elsewhere go on for a while after the signal is sent.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    siginfo_t stopped;
    ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WNOWAIT);
  }
  /// SIGKILL, and waits until it is gone.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  ::pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace mooncaf::test
