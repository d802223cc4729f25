#pragma once
// The handshake of a TCP link, byte by byte over a socket that does not block.

#include <cstddef>
#include <utility>
#include <vector>

#include "transport/net/handshake.hpp"

namespace mooncaf {

/// @thread  the link's, with its I/O lock held
class link_greeting {
 public:
  explicit link_greeting(handshake shake) : shake_(std::move(shake)) {}

  /// The socket is connected: the initiator speaks first.
  void open() { out_ = shake_.opening(); }
  /// Reads the bytes that have come. @returns `more` while the peer's next message is incomplete.
  /// @error the link is to die: `ec::unauthenticated`, `ec::peer_lost`, or the handshake's error.
  result<handshake::progress> read(int fd);
  /// Sends the pending messages. @returns false if the socket does not take all of it now. @error as above
  result<bool> write(int fd);

  /// Acceptor, once `read` says `identified`.
  void admit() { say(shake_.admit()); }
  void refuse(ec why) { say(shake_.refuse(why)); }

  const link_identity& peer() const noexcept { return shake_.peer(); }

 private:
  void say(const handshake::step& s) { out_.insert(out_.end(), s.answer.begin(), s.answer.end()); }

  handshake shake_;
  std::vector<std::byte> in_;  // the beginning of the peer's next message
  std::vector<std::byte> out_;
};

}  // namespace mooncaf
