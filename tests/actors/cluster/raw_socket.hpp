#pragma once
// A bare socket, for tests that say anything but the right thing.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "transport/net/socket.hpp"

namespace mooncaf::testing {

inline unique_fd knock(std::uint16_t port) {
  return std::move(dial_tcp("127.0.0.1", port, clock_type::now() + std::chrono::seconds(5)).value());
}

inline void say(const unique_fd& fd, std::string_view bytes) {
  [[maybe_unused]] const auto sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// Reads until the other end hangs up. @returns what it said, or nothing after `limit`.
inline result<std::string> until_closed(const unique_fd& fd, duration limit) {
  const auto until = clock_type::now() + limit;
  std::string heard;
  char buffer[4096];
  while (wait_for_socket(fd.get(), POLLIN, until)) {
    const auto got = recv(fd.get(), buffer, sizeof buffer, 0);
    if (got <= 0) return heard;
    heard.append(buffer, static_cast<std::size_t>(got));
  }
  return fail(ec::timed_out, "still open");
}

}  // namespace mooncaf::testing
