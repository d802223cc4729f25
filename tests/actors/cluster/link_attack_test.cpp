// Everything that a peer without the secret may try at the control port.
#include <doctest/doctest.h>
#include <openssl/ssl.h>
#include <sys/mman.h>

#include <array>
#include <random>
#include <vector>

#include "tests/actors/cluster/echo.hpp"
#include "tests/actors/cluster/raw_socket.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using node = linked_system<caf::id_block::cluster_tests>;

namespace {

key_ring our_secret() { return {"the secret of this cluster"}; }

/// A guarded node, a friend with a link to it, and the port to attack.
struct fortress {
  node home{our_secret()};
  node ally{our_secret()};
  std::uint16_t port =
      home.link.publish(home.keep(echo_actor{home.sys.spawn<echo>()}), "127.0.0.1", 0).value();
  echo_actor far = ally.link.dial<echo_actor>("127.0.0.1", port).value();

  bool serves_ally() {
    return ally.ask<std::string>(far, echo_atom_v, std::string{"ping"}) == std::string{"ping"};
  }
  bool admits_newcomer() {
    node newcomer{our_secret()};
    const auto reached = newcomer.link.dial<echo_actor>("127.0.0.1", port);
    return reached &&
           newcomer.ask<std::string>(*reached, echo_atom_v, std::string{"new"}) == std::string{"new"};
  }
};

}  // namespace

TEST_CASE("garbage gets nothing but a hang-up") {
  fortress f;
  std::mt19937_64 random{11};
  std::vector<unique_fd> strangers;
  for (int i = 0; i < 60; ++i) {
    std::string noise(1 + random() % 2000, '\0');
    for (auto& c : noise) c = static_cast<char>(random());
    if (i % 3 == 0) noise = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    if (i % 3 == 1) noise.insert(0, std::string{"\x16\x03\x01\x02\x00\x01", 6});  // begins like TLS
    strangers.push_back(knock(f.port));
    say(strangers.back(), noise);
  }
  for (std::size_t i = 0; i < strangers.size(); ++i) {
    CAPTURE(i);
    const auto heard = until_closed(strangers[i], std::chrono::seconds(10));
    REQUIRE(heard);
    // At most a TLS alert: seven bytes.
    CHECK(heard->size() <= 7);
  }
  CHECK(eventually([&] { return f.home.link.counters().admitted == 1; }));
  CHECK(f.serves_ally());
  CHECK(f.admits_newcomer());
}

TEST_CASE("silent peers are bounded in number and in time, and cost nobody else anything") {
  fortress f;
  std::vector<unique_fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(knock(f.port));
  CHECK(f.serves_ally());
  CHECK(f.admits_newcomer());
  for (const auto& fd : silent) {
    const auto heard = until_closed(fd, std::chrono::seconds(10));
    REQUIRE(heard);
    CHECK(heard->empty());
  }
  CHECK(eventually([&] { return f.home.link.counters().expired == 300; }));
  CHECK(f.serves_ally());
}

TEST_CASE("who knocks often does not fill the log") {
  fortress f;
  const unique_fd log{memfd_create("log", MFD_CLOEXEC)};
  const unique_fd stderr_before{dup(STDERR_FILENO)};
  REQUIRE(dup2(log.get(), STDERR_FILENO) == STDERR_FILENO);
  for (int i = 0; i < 300; ++i) {
    const auto fd = knock(f.port);
    say(fd, "garbage, as long as a greeting would be");
    until_closed(fd, std::chrono::seconds(10));
  }
  dup2(stderr_before.get(), STDERR_FILENO);
  CHECK(eventually([&] { return f.home.link.counters().refused == 300; }));
  std::string text(static_cast<std::size_t>(lseek(log.get(), 0, SEEK_END)), '\0');
  REQUIRE(pread(log.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  std::size_t lines = 0;
  for (auto at = text.find("link refused"); at != std::string::npos; at = text.find("link refused", at + 1))
    ++lines;
  CHECK(lines >= 60);
  CHECK(lines < 60 + 120);  // one more a second
}

TEST_CASE("a TLS client with no key, or an unknown one, is refused") {
  fortress f;
  for (const bool any_version : {false, true}) {
    const auto fd = knock(f.port);
    auto* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    if (any_version) SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    auto* ssl = SSL_new(context);
    SSL_set_fd(ssl, fd.get());
    int status = -1;
    while ((status = SSL_connect(ssl)) != 1 && SSL_get_error(ssl, status) == SSL_ERROR_WANT_READ) {
      REQUIRE(wait_for_socket(fd.get(), POLLIN, clock_type::now() + std::chrono::seconds(10)));
    }
    CHECK(status != 1);
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  CHECK(eventually([&] { return f.home.link.counters().refused == 2; }));
  CHECK(f.serves_ally());
}

TEST_CASE("a peer that speaks CAF's protocol without the secret is refused") {
  fortress f;
  const auto fd = knock(f.port);
  std::string frame(200, '\0');  // as long as a client handshake of CAF, and as empty
  frame[0] = 1;
  say(fd, frame);
  const auto heard = until_closed(fd, std::chrono::seconds(10));
  REQUIRE(heard);
  CHECK(heard->size() <= 7);
  CHECK(f.serves_ally());
}

TEST_CASE("a mute listener holds up a dial for a bounded time, and no later one") {
  node n;
  node good;
  const unique_fd listener{socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(listen(listener.get(), 8) == 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size);
  const auto port = good.link.publish(good.keep(echo_actor{good.sys.spawn<echo>()}), "127.0.0.1", 0);
  REQUIRE(port);

  const auto begin = clock_type::now();
  const auto mute = n.link.dial<echo_actor>("127.0.0.1", ntohs(at.sin_port), std::chrono::milliseconds(200));
  REQUIRE_FALSE(mute);
  CHECK(mute.error() == ec::timed_out);
  CHECK(clock_type::now() - begin < std::chrono::seconds(8));
  const auto later = n.link.dial<echo_actor>("127.0.0.1", *port, std::chrono::seconds(10));
  CHECK_MESSAGE(later, to_string(later.error()));
}
