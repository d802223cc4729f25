#include "transport/tcp/link_greeting.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "runtime/base/posix.hpp"

namespace mooncaf {

result<handshake::progress> link_greeting::read(int fd) {
  for (;;) {
    const std::size_t want = shake_.want();
    std::byte buffer[handshake::identity_bytes];
    const auto n = ::recv(fd, buffer, want - in_.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return handshake::progress::more;
    if (n <= 0) {
      if (shake_.proof_sent() && n == 0)
        return fail(ec::unauthenticated, "the peer hung up on our proof: is its cluster secret another one?");
      return fail(ec::peer_lost, "the connection broke before it was authenticated");
    }
    in_.insert(in_.end(), buffer, buffer + n);
    if (in_.size() < want) continue;
    const auto step = shake_.feed(std::exchange(in_, {}));
    if (!step) return fail(step.error());
    say(*step);
    if (step->at != handshake::progress::more) return step->at;
  }
}

result<bool> link_greeting::write(int fd) {
  while (!out_.empty()) {
    const auto n = ::send(fd, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0) return fail(ec::peer_lost, "the connection broke: " + errno_text(errno));
    out_.erase(out_.begin(), out_.begin() + n);
  }
  return true;
}

}  // namespace mooncaf
