// Any bytes come in at the port: the server answers or hangs up, never waits for more from a client that has
// closed its side, and forgets the connection.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "actors/http/http_server.hpp"

using namespace mooncaf;

namespace {

http_server& server() {
  static const auto running = [] {
    http_options options;
    options.max_body_bytes = 4096;
    options.max_header_bytes = 2048;
    auto started = http_server::start(options, [](http_request request, std::shared_ptr<http_responder> out) {
      if (request.path.size() % 2) {
        out->begin_stream(200, {{"Content-Type", "text/plain"}});
        out->write(request.body);
        return out->finish();
      }
      out->respond(200, {{"X-Query", request.query}}, request.body);
    });
    if (!started) std::abort();
    return std::move(*started);
  }();
  return *running;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto& to = server();
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const linger reset{1, 0};  // no TIME_WAIT: ports would run out
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(to.port());
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) std::abort();
  if (send(fd, data, size, MSG_NOSIGNAL) >= 0) shutdown(fd, SHUT_WR);
  char piece[4096];
  ssize_t got = 0;
  while ((got = recv(fd, piece, sizeof piece, 0)) > 0) {
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) std::abort();
  close(fd);
  return 0;
}
