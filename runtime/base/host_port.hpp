#pragma once
// A network endpoint by name.

#include <cstdint>
#include <string>

namespace mooncaf {

/// `port` 0 lets the operating system pick one, where the endpoint is to be opened.
struct host_port {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const host_port&, const host_port&) = default;
};

/// "127.0.0.1:8000", "[::1]:8000".
inline std::string to_string(const host_port& at) {
  const bool brackets = at.host.find(':') != std::string::npos;
  return (brackets ? "[" + at.host + "]" : at.host) + ":" + std::to_string(at.port);
}

}  // namespace mooncaf
