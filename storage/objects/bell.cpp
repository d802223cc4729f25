#include "storage/objects/bell.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>

#include "storage/objects/patient_socket.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

result<bell> bell::hang() {
  unique_fd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  ::sockaddr_un at{};
  at.sun_family = AF_UNIX;
  // Bound with the family alone, the kernel finds a name that nobody has.
  if (!fd || ::bind(fd.get(), reinterpret_cast<const ::sockaddr*>(&at), sizeof(at.sun_family)) != 0)
    return fail(ec::io_error, "a Unix socket to be woken by: " + errno_text());
  ::socklen_t size = sizeof(at);
  if (::getsockname(fd.get(), reinterpret_cast<::sockaddr*>(&at), &size) != 0)
    return fail(ec::io_error, "a Unix socket's name: " + errno_text());
  const auto length = size - offsetof(::sockaddr_un, sun_path);
  std::string name(at.sun_path, length);
  name[0] = '@';
  return bell{std::move(fd), std::move(name)};
}

void bell::wait(time_point until) {
  wait_for_socket(fd_.get(), POLLIN, until);
  std::byte rung[8];
  while (::recv(fd_.get(), rung, sizeof(rung), 0) > 0) {
  }
}

unique_fd bell_ringer::make() {
  return unique_fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

void bell_ringer::ring(const std::string& name) {
  const auto at = unix_address(name);
  if (!at) return;
  const std::byte one{1};
  ::sendto(fd_.get(), &one, 1, MSG_NOSIGNAL, at->get(), at->size);
}

}  // namespace mooncaf
