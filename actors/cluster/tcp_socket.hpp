#pragma once
// Sockets with limits: CAF's own connect waits as long as the kernel does.

#include <cstdint>
#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Connects to any address of `host`. The socket is non-blocking. Looking up a name has the resolver's own
/// limit.
/// @error `ec::peer_lost` nobody listens there, or no address; `ec::timed_out`
result<unique_fd> connect_tcp(const std::string& host, std::uint16_t port, time_point until);

enum class readiness : short { read, write };

/// Waits until a socket is ready, or has failed. @returns false at the limit.
bool wait_ready(int fd, readiness what, time_point until);

/// Whether every address of `host` is a loopback address. An empty host means all interfaces.
bool is_loopback(const std::string& host);

/// "127.0.0.1:4711" of the other end, for logs.
std::string peer_name(int fd);

}  // namespace mooncaf
