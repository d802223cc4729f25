#pragma once
// Names of hosts and of the other ends of connections.

#include <string>

namespace mooncaf {

/// Whether every address of `host` is a loopback address. An empty host means all interfaces.
bool is_loopback(const std::string& host);

/// "127.0.0.1:4711" of the other end, for logs.
std::string peer_name(int fd);

}  // namespace mooncaf
