#pragma once
// The Unix socket over which processes of the directory's own host reach it, in a third of the time that TCP
// takes over loopback. Its name follows from the port, so no process has to be told of it.

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>

#include "transport/net/socket.hpp"

namespace mooncaf {

/// @param at  where a directory listens, or is called. @returns the name of its socket, in the abstract
/// namespace; nothing if processes of the same host do not, or need not, mean the same by this address.
inline std::optional<std::string> unix_endpoint(const socket_address& at, std::uint16_t port, bool listens) {
  const auto name = [&](const char* family) {
    return "@mooncaf-store-" + std::string{family} + "-" + std::to_string(port);
  };
  if (at.storage.ss_family == AF_INET) {
    const auto ip = ntohl(reinterpret_cast<const ::sockaddr_in*>(&at.storage)->sin_addr.s_addr);
    if (ip == INADDR_LOOPBACK || (listens && ip == INADDR_ANY)) return name("4");
  } else if (at.storage.ss_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const ::sockaddr_in6*>(&at.storage)->sin6_addr;
    if (std::memcmp(&ip, &in6addr_loopback, sizeof(ip)) == 0 ||
        (listens && std::memcmp(&ip, &in6addr_any, sizeof(ip)) == 0))
      return name("6");
  }
  return std::nullopt;
}

}  // namespace mooncaf
