#include "transport/net/patient_socket.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "runtime/base/posix.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

result<void> send_whole(int fd, std::span<const std::byte> bytes, time_point until) {
  while (!bytes.empty()) {
    const auto n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_for_socket(fd, POLLOUT, until)) return fail(ec::timed_out, "it takes no more bytes");
    } else if (errno != EINTR) {
      return fail(ec::peer_lost, errno_text());
    }
  }
  return {};
}

result<void> receive_whole(int fd, std::span<std::byte> into, time_point until) {
  while (!into.empty()) {
    const auto n = ::recv(fd, into.data(), into.size(), 0);
    if (n > 0) {
      into = into.subspan(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      if (!wait_for_socket(fd, POLLIN, until)) return fail(ec::timed_out, "no answer in time");
    } else if (n == 0 || errno != EINTR) {
      return fail(ec::peer_lost, n == 0 ? "it closed the connection" : errno_text());
    }
  }
  return {};
}

}  // namespace mooncaf
