#include "transport/net/socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace mooncaf {
namespace {

result<unique_fd> listen_on(int family, int type, const socket_address& at) {
  unique_fd fd{::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) return fail(ec::io_error, "cannot make a socket: " + errno_text(errno));
  const int on = 1;
  if (family != AF_UNIX) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), at.get(), at.size) != 0 || ::listen(fd.get(), 256) != 0)
    return fail(ec::io_error, "cannot listen: " + errno_text(errno));
  return fd;
}

result<unique_fd> connect_to(int family, int type, const socket_address& to) {
  unique_fd fd{::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) return fail(ec::io_error, "cannot make a socket: " + errno_text(errno));
  if (::connect(fd.get(), to.get(), to.size) != 0 && errno != EINPROGRESS)
    return fail(ec::peer_lost, "cannot connect: " + errno_text(errno));
  return fd;
}

}  // namespace

result<std::vector<socket_address>> resolve_all_tcp(const std::string& host, std::uint16_t port) {
  ::addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  ::addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0) return fail(ec::invalid_argument, "cannot resolve host '" + host + "': " + ::gai_strerror(rc));
  std::vector<socket_address> all;
  for (const auto* at = found; at != nullptr; at = at->ai_next) {
    auto& address = all.emplace_back();
    address.size = at->ai_addrlen;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return all;
}

result<socket_address> resolve_tcp(const std::string& host, std::uint16_t port) {
  auto all = resolve_all_tcp(host, port);
  if (!all) return fail(all.error());
  return all->front();
}

result<socket_address> unix_address(const std::string& name) {
  socket_address address;
  auto* sun = reinterpret_cast<::sockaddr_un*>(&address.storage);
  if (name.size() < 2 || name.size() + 1 > sizeof(sun->sun_path))
    return fail(ec::invalid_argument, "Unix socket name '" + name + "' is empty or longer than 107 bytes");
  sun->sun_family = AF_UNIX;
  std::memcpy(sun->sun_path, name.data(), name.size());
  if (name[0] == '@') sun->sun_path[0] = '\0';
  address.size =
      static_cast<::socklen_t>(offsetof(::sockaddr_un, sun_path) + name.size() + (name[0] == '@' ? 0 : 1));
  return address;
}

result<unique_fd> listen_tcp(const socket_address& at) {
  return listen_on(at.storage.ss_family, SOCK_STREAM, at);
}
result<unique_fd> listen_unix(const socket_address& at, int type) { return listen_on(AF_UNIX, type, at); }

std::uint16_t bound_port(int fd) {
  socket_address a;
  a.size = sizeof(a.storage);
  ::getsockname(fd, reinterpret_cast<::sockaddr*>(&a.storage), &a.size);
  if (a.storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<::sockaddr_in6*>(&a.storage)->sin6_port);
  return ntohs(reinterpret_cast<::sockaddr_in*>(&a.storage)->sin_port);
}

result<unique_fd> connect_tcp(const socket_address& to) {
  return connect_to(to.storage.ss_family, SOCK_STREAM, to);
}
result<unique_fd> connect_unix(const socket_address& to, int type) { return connect_to(AF_UNIX, type, to); }

int connect_error(int fd) {
  int code = 0;
  ::socklen_t size = sizeof(code);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

bool wait_for_socket(int fd, short events, time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock_type::now()).count();
    ::pollfd one{fd, events, 0};
    const int n = ::poll(&one, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (n > 0 || (n < 0 && errno != EINTR)) return true;
    if (n == 0 && left <= 0) return false;
  }
}

result<unique_fd> dial_tcp(const socket_address& to, time_point until) {
  auto fd = connect_tcp(to);
  if (!fd) return fd;
  if (!wait_for_socket(fd->get(), POLLOUT, until))
    return fail(ec::timed_out, "no answer to the connection request");
  if (const int why = connect_error(fd->get()); why != 0) return fail(ec::peer_lost, errno_text(why));
  return fd;
}

result<unique_fd> dial_tcp(const std::string& host, std::uint16_t port, time_point until) {
  const auto where = host + ":" + std::to_string(port);
  const auto addresses = resolve_all_tcp(host, port);
  if (!addresses) return fail(ec::peer_lost, addresses.error().detail);
  error last;
  for (const auto& at : *addresses) {
    auto fd = dial_tcp(at, until);
    if (fd) return fd;
    last = {fd.error().code, where + ": " + fd.error().detail};
  }
  return fail(std::move(last));
}

void tune_tcp(int fd, duration lost_after) {
  const int on = 1;
  const auto seconds = static_cast<int>(std::max<std::int64_t>(1, lost_after / std::chrono::seconds(1)));
  const int interval = std::max(1, seconds / 4);
  const int probes = 3;
  const auto ms = static_cast<unsigned>(std::max<std::int64_t>(1, lost_after / std::chrono::milliseconds(1)));
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof(interval));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

void bound_send_buffer(int fd, std::uint64_t bytes) {
  const auto size = static_cast<int>(std::min<std::uint64_t>(bytes, std::numeric_limits<int>::max() / 2));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

packet_status send_packet(int fd, std::span<const std::byte> bytes, std::span<const int> fds) {
  ::iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(::cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)] = {};
  ::msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(fd, &message, MSG_NOSIGNAL) >= 0) return packet_status::ok;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS ? packet_status::again : packet_status::closed;
  }
}

packet_status receive_packet(int fd, std::vector<std::byte>& bytes, std::vector<unique_fd>& fds) {
  constexpr std::size_t packet_max = 4096;
  bytes.resize(packet_max);
  fds.clear();
  ::iovec part{bytes.data(), bytes.size()};
  alignas(::cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  ::msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ::ssize_t n;
  do n = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN ? packet_status::again : packet_status::closed;
  for (auto* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(received);
    }
  }
  if (n == 0 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return packet_status::closed;
  bytes.resize(static_cast<std::size_t>(n));
  return packet_status::ok;
}

bool same_user(int fd) {
  ::ucred who{};
  ::socklen_t size = sizeof(who);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return false;
  return who.uid == ::geteuid() || who.uid == 0;
}

}  // namespace mooncaf
