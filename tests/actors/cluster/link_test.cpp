#include "actors/cluster/link.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/actors/cluster/echo.hpp"
#include "tests/support/actor_fixture.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using node = linked_system<caf::id_block::cluster_tests>;
using pair = two_systems<caf::id_block::cluster_tests>;

namespace {

const auto ours = [] { return key_ring{"the secret of this cluster"}; };

echo_actor spawn_echo(node& n) { return n.keep(echo_actor{n.sys.spawn<echo>()}); }

}  // namespace

TEST_CASE("messages, answers and errors cross a link, with a secret and without") {
  for (const bool authenticated : {false, true}) {
    CAPTURE(authenticated);
    pair systems{authenticated ? ours() : key_ring{}};
    auto far = systems.reach(spawn_echo(systems.a));
    REQUIRE_MESSAGE(far, to_string(far.error()));
    CHECK(systems.b.ask<std::string>(*far, echo_atom_v, std::string{"hello"}) == std::string{"hello"});
    const auto refused = systems.b.ask<void>(*far, refuse_atom_v, std::string{"queue full"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == ec::overloaded);
    CHECK(refused.error().detail == "queue full");
  }
}

TEST_CASE("messages of every size arrive whole and in order over an encrypted link") {
  pair systems{ours()};
  auto far = systems.reach(spawn_echo(systems.a));
  REQUIRE(far);
  std::mt19937_64 random{7};
  for (const std::size_t size : {0, 1, 16'383, 16'384, 16'385, 65'536, 1'000'003, 8'000'000}) {
    std::string text(size, '\0');
    for (auto& c : text) c = static_cast<char>(random());
    const auto back = systems.b.ask<std::string>(*far, echo_atom_v, text);
    REQUIRE_MESSAGE(back, size << " bytes: " << to_string(back.error()));
    CHECK(*back == text);
  }
  for (int i = 0; i < 3000; ++i)
    systems.b.self->send(*far, count_atom_v, std::string(static_cast<std::size_t>(i % 700), 'x'));
  // One sender's messages stay in order, so this one is the 3001st.
  const auto counted = systems.b.ask<std::uint64_t>(*far, count_atom_v, std::string{});
  REQUIRE_MESSAGE(counted, to_string(counted.error()));
  CHECK(*counted == 3001);
}

TEST_CASE("without a secret only loopback addresses are listened on") {
  node n;
  const auto root = spawn_echo(n);
  for (const auto* host : {"0.0.0.0", "::", "", "192.0.2.1", "no-such-host.invalid"}) {
    const auto port = n.link.publish(root, host, 0);
    REQUIRE_FALSE(port);
    CHECK(port.error() == ec::invalid_argument);
    CHECK(port.error().detail.find("secret") != std::string::npos);
  }
  CHECK(n.link.publish(root, "127.0.0.1", 0));
  CHECK(n.link.publish(root, "localhost", 0));

  node guarded{ours()};
  CHECK(guarded.link.publish(spawn_echo(guarded), "0.0.0.0", 0));
}

TEST_CASE("a port that is taken is an error that names it") {
  node n;
  node other;
  const auto port = n.link.publish(spawn_echo(n), "127.0.0.1", 0);
  REQUIRE(port);
  const auto again = other.link.publish(spawn_echo(other), "127.0.0.1", *port);
  REQUIRE_FALSE(again);
  CHECK(again.error() == ec::io_error);
  CHECK(again.error().detail.find(std::to_string(*port)) != std::string::npos);
}

TEST_CASE("a node with another secret gets nothing, and disturbs nobody") {
  pair friends{ours()};
  const auto root = spawn_echo(friends.a);
  const auto port = friends.a.link.publish(root, "127.0.0.1", 0);
  REQUIRE(port);
  auto far = friends.b.link.dial<echo_actor>("127.0.0.1", *port);
  REQUIRE(far);

  node stranger{key_ring{"the secret of another cluster"}};
  for (int i = 0; i < 20; ++i) {
    const auto refused = stranger.link.dial<echo_actor>("127.0.0.1", *port);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == ec::unauthenticated);
    // A failed handshake must not break a healthy link that is served by the same thread.
    CHECK(friends.b.ask<std::string>(*far, echo_atom_v, std::string{"still here"}) ==
          std::string{"still here"});
  }
  CHECK(eventually([&] { return friends.a.link.counters().refused == 20; }));
  CHECK(eventually([&] { return friends.a.link.counters().admitted == 1; }));
}

TEST_CASE("a cluster gets another secret, file by file, and nobody is shut out meanwhile") {
  const test::temp_dir folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / "draft") << text;
    std::filesystem::permissions(folder / "draft", std::filesystem::perms{0600});
    std::filesystem::rename(folder / "draft", folder / name);
  };
  const auto ring = [&](const std::string& name) {
    return key_ring{secret_file::open(folder / name).value(), "control plane v1"};
  };
  const std::string old = "the secret of this cluster\n", fresh = "the secret of its future\n";
  for (const auto* name : {"a", "b", "old"}) put(name, old);
  node a{ring("a")}, b{ring("b")};
  const auto port_a = a.link.publish(spawn_echo(a), "127.0.0.1", 0),
             port_b = b.link.publish(spawn_echo(b), "127.0.0.1", 0);
  REQUIRE((port_a && port_b));
  const auto linked = [&](std::uint16_t port) {  // as a newcomer of `a`'s host and one of `b`'s
    for (const auto* name : {"a", "b"}) {
      node newcomer{ring(name)};
      const auto far = newcomer.link.dial<echo_actor>("127.0.0.1", port);
      REQUIRE_MESSAGE(far, name << ": " << to_string(far.error()));
      CHECK(newcomer.ask<std::string>(*far, echo_atom_v, std::string{"hello"}) == std::string{"hello"});
    }
  };
  auto stands = b.link.dial<echo_actor>("127.0.0.1", *port_a);
  REQUIRE(stands);
  for (const auto& text : {old + fresh, fresh + old, fresh})
    for (const auto* name : {"b", "a"}) {
      CAPTURE(text);
      CAPTURE(name);
      put(name, text);
      linked(*port_a);
      linked(*port_b);
      CHECK(b.ask<std::string>(*stands, echo_atom_v, std::string{"still"}) == std::string{"still"});
    }
  node late{ring("old")};
  CHECK(late.link.dial<echo_actor>("127.0.0.1", *port_a).error() == ec::unauthenticated);
}

TEST_CASE("a node without a secret cannot join one that has one, nor the other way round") {
  node guarded{ours()};
  node open;
  const auto guarded_port = guarded.link.publish(spawn_echo(guarded), "127.0.0.1", 0);
  const auto open_port = open.link.publish(spawn_echo(open), "127.0.0.1", 0);
  REQUIRE(guarded_port);
  REQUIRE(open_port);

  const auto in = open.link.dial<echo_actor>("127.0.0.1", *guarded_port);
  REQUIRE_FALSE(in);
  CHECK(in.error().detail.find("secret") != std::string::npos);
  CHECK(eventually([&] { return guarded.link.counters().admitted == 0; }));

  const auto out = guarded.link.dial<echo_actor>("127.0.0.1", *open_port);
  REQUIRE_FALSE(out);
  CHECK(out.error() == ec::unauthenticated);
}

TEST_CASE("dialling says why it failed") {
  node n;
  SUBCASE("nobody listens") {
    node other;
    const auto port = other.link.publish(spawn_echo(other), "127.0.0.1", 0);
    REQUIRE(port);
    other.link.close();
    const auto found = n.link.dial<echo_actor>("127.0.0.1", *port);
    REQUIRE_FALSE(found);
    CHECK(found.error() == ec::peer_lost);
    CHECK(found.error().detail.find(std::to_string(*port)) != std::string::npos);
  }
  SUBCASE("the host has no address") {
    const auto found = n.link.dial<echo_actor>("no-such-host.invalid", 1);
    REQUIRE_FALSE(found);
    CHECK(found.error().detail.find("no-such-host.invalid") != std::string::npos);
  }
  SUBCASE("another interface is behind the port") {
    using other_actor = caf::typed_actor<MOONCAF_RPC(int, echo_atom, int)>;
    node other;
    const auto port = other.link.publish(spawn_echo(other), "127.0.0.1", 0);
    const auto found = n.link.dial<other_actor>("127.0.0.1", port.value());
    REQUIRE_FALSE(found);
    CHECK(found.error() == ec::incompatible);
  }
  SUBCASE("it is this very process") {
    const auto port = n.link.publish(spawn_echo(n), "127.0.0.1", 0);
    const auto found = n.link.dial<echo_actor>("127.0.0.1", port.value());
    REQUIRE_FALSE(found);
    CHECK(found.error() == ec::already_exists);
  }
  SUBCASE("the link is closed") {
    n.link.close();
    const auto found = n.link.dial<echo_actor>("127.0.0.1", 1);
    REQUIRE_FALSE(found);
    CHECK(found.error() == ec::cancelled);
  }
}

TEST_CASE("another protocol version is refused by name") {
  struct newer : config_with<cluster_config, caf::id_block::cluster_tests> {
    newer() { set("middleman.app-identifiers", std::vector<std::string>{"mooncaf-9999"}); }
  };
  node n{ours()};
  const auto port = n.link.publish(spawn_echo(n), "127.0.0.1", 0);
  REQUIRE(port);
  newer cfg;
  caf::actor_system sys{cfg};
  auto link = cluster_link::open(sys, ours());
  REQUIRE(link);
  const auto found = link->dial<echo_actor>("127.0.0.1", *port);
  REQUIRE_FALSE(found);
  CHECK(found.error() == ec::incompatible);
}

TEST_CASE("links open and close a hundred times without a hang") {
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    pair systems{i % 2 == 0 ? ours() : key_ring{}};
    auto far = systems.reach(spawn_echo(systems.a));
    REQUIRE(far);
    if (i % 3 == 0) REQUIRE(systems.b.ask<std::string>(*far, echo_atom_v, std::string{"x"}));
    if (i % 5 == 0) systems.a.link.close();
  }
}
