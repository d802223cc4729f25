#include "actors/cluster/tcp_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

namespace mooncaf {

namespace {

using address_list = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

result<address_list> resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (status != 0) return fail(ec::peer_lost, "host " + host + ": " + gai_strerror(status));
  return address_list{found, freeaddrinfo};
}

std::string message_of(int number) { return std::generic_category().message(number); }

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return address->sa_family == AF_INET6 &&
         (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

}  // namespace

bool wait_ready(int fd, readiness what, time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_type::now()).count();
    pollfd entry{fd, static_cast<short>(what == readiness::read ? POLLIN : POLLOUT), 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

result<unique_fd> connect_tcp(const std::string& host, std::uint16_t port, time_point until) {
  auto addresses = resolve(host, std::to_string(port));
  if (!addresses) return fail(std::move(addresses.error()));
  const auto where = host + ":" + std::to_string(port);
  error last{ec::peer_lost, where + ": no address"};
  for (const auto* at = addresses->get(); at != nullptr; at = at->ai_next) {
    unique_fd fd{socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!fd) {
      last = {ec::io_error, "socket: " + message_of(errno)};
      continue;
    }
    if (connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
    int problem = errno;
    if (problem == EINPROGRESS) {
      if (!wait_ready(fd.get(), readiness::write, until)) {
        last = {ec::timed_out, where + ": no answer to the connection request"};
        continue;
      }
      socklen_t size = sizeof problem;
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
      if (problem == 0) return fd;
    }
    last = {ec::peer_lost, where + ": " + message_of(problem)};
  }
  return fail(std::move(last));
}

bool is_loopback(const std::string& host) {
  if (host.empty()) return false;
  const auto addresses = resolve(host, "");
  if (!addresses) return false;
  for (const auto* at = addresses->get(); at != nullptr; at = at->ai_next) {
    if (!is_loopback(at->ai_addr)) return false;
  }
  return true;
}

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return address.ss_family == AF_INET6 ? "[" + std::string{host} + "]:" + port
                                       : std::string{host} + ":" + port;
}

}  // namespace mooncaf
