#pragma once
// How a gateway hands its listening socket to its successor on the same host.
//
// The socket itself is passed, over a socket of the file system. Both processes then accept from one queue, so no
// connection is lost whichever of them closes first. With SO_REUSEPORT each would have a queue of its own, and
// closing the older one resets what is in it; any process of the user could also take part unasked, and a server
// that is started twice by mistake would not be told so.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// The listening socket of the process that offers one at `path`; nothing if nobody does, or `path` is empty.
/// @error `ec::invalid_argument` if it listens elsewhere than at this address and port, where 0 is any;
/// `ec::io_error`.
result<std::optional<unique_fd>> inherit_listener(const std::string& path, const std::string& address,
                                                  std::uint16_t port);

/// Gives a listening socket to every process of the same user that asks at `path`, while it lives. A predecessor's
/// offer there is replaced.
/// @thread  It has one of its own; otherwise one at a time.
class listener_offer {
 public:
  /// @error `ec::invalid_argument` if the path is too long or no socket; `ec::io_error` with it and the reason.
  static result<listener_offer> open(const std::string& path, int listener);
  listener_offer(listener_offer&&) noexcept;
  listener_offer& operator=(listener_offer&&) noexcept;
  ~listener_offer();

 private:
  class impl;
  explicit listener_offer(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace mooncaf
