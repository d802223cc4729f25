#include "actors/cluster/host_names.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return address->sa_family == AF_INET6 &&
         (IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127));
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host.empty()) return false;
  const auto addresses = resolve_all_tcp(host, 0);
  return addresses && std::ranges::all_of(*addresses, [](const auto& at) { return is_loopback(at.get()); });
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
