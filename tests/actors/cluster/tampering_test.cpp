// Somebody between two nodes who changes, cuts or repeats what passes.
#include <doctest/doctest.h>
#include <netinet/in.h>

#include <atomic>
#include <thread>

#include "tests/actors/cluster/echo.hpp"
#include "tests/actors/cluster/raw_socket.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using node = linked_system<caf::id_block::cluster_tests>;

namespace {

/// Passes bytes on between one client and a port, and changes one bit of what the client says when told to.
class meddler {
 public:
  explicit meddler(std::uint16_t to) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 || listen(listener_.get(), 1) != 0)
      return;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, to] { pass(to); });
  }
  ~meddler() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::uint16_t port() const { return port_; }
  void flip_next() { flip_ = true; }

 private:
  void pass(std::uint16_t to) {
    const auto soon = [] { return clock_type::now() + std::chrono::milliseconds(10); };
    while (!stop_ && !wait_for_socket(listener_.get(), POLLIN, soon())) {
    }
    if (stop_) return;
    const unique_fd client{accept(listener_.get(), nullptr, nullptr)};
    const auto server = knock(to);
    while (!stop_) {
      if (!forward(client.get(), server.get(), soon(), flip_) ||
          !forward(server.get(), client.get(), soon(), none_))
        break;
    }
  }
  static bool forward(int from, int into, time_point until, std::atomic<bool>& flip) {
    if (!wait_for_socket(from, POLLIN, until)) return true;
    char buffer[4096];
    const auto got = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    if (flip.exchange(false)) buffer[got - 1] = static_cast<char>(buffer[got - 1] ^ 1);
    return send(into, buffer, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
  }

  unique_fd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> flip_{false};
  std::atomic<bool> none_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a link breaks rather than deliver a message that somebody changed on the way") {
  const key_ring secret{"the secret of this cluster"};
  node callee{secret};
  node caller{secret};
  const auto root = callee.keep(echo_actor{callee.sys.spawn<echo>()});
  const auto port = callee.link.publish(root, "127.0.0.1", 0);
  REQUIRE(port);
  meddler between{*port};
  auto far = caller.link.dial<echo_actor>("127.0.0.1", between.port());
  REQUIRE_MESSAGE(far, to_string(far.error()));
  REQUIRE(caller.ask<std::uint64_t>(*far, count_atom_v, std::string{"untouched"}) == std::uint64_t{1});

  caller.self->monitor(*far);
  between.flip_next();
  caller.self->send(*far, count_atom_v, std::string{"changed"});
  bool down = false;
  caller.self->receive([&](const caf::down_msg&) { down = true; },
                       caf::after(std::chrono::seconds(10)) >> [] {});
  CHECK(down);
  // The callee has counted the first message and not the second.
  const auto counted = callee.ask<std::uint64_t>(root, count_atom_v, std::string{});
  REQUIRE_MESSAGE(counted, to_string(counted.error()));
  CHECK(*counted == 2);
}
