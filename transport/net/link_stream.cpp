#include "transport/net/link_stream.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace mooncaf {

link_stream::passed socket_stream::failed(int why) {
  if (why == EAGAIN) return {state::again};
  broke_ = why;
  return {state::broken};
}

link_stream::passed socket_stream::send(std::span<const std::byte> bytes) {
  for (;;) {
    const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) return {state::ok, static_cast<std::size_t>(n)};
    if (errno != EINTR) return failed(errno);
  }
}

link_stream::passed socket_stream::receive(std::span<std::byte> into) {
  for (;;) {
    const auto n = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (n > 0) return {state::ok, static_cast<std::size_t>(n)};
    if (n == 0) return {state::closed};
    if (errno != EINTR) return failed(errno);
  }
}

std::string socket_stream::why() const { return errno_text(broke_); }

void socket_stream::wake_from(std::size_t bytes) {
  const int n = static_cast<int>(bytes);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n));
}

void socket_stream::shutdown() noexcept { ::shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace mooncaf
