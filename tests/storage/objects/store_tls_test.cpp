// Links of the store over TCP: TLS, what strangers may do, and who is of another version.

#include <doctest/doctest.h>
#include <poll.h>

#include <array>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "storage/objects/client/store_client.hpp"
#include "storage/objects/directory/directory_shards.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "storage/objects/wire/directory_link.hpp"
#include "tests/storage/objects/secrets.hpp"
#include "transport/net/handshake.hpp"
#include "transport/net/patient_socket.hpp"
#include "transport/net/socket.hpp"
#include "transport/net/tls_stream.hpp"

using namespace mooncaf;
using mooncaf::test::key_a;
using mooncaf::test::key_b;
using mooncaf::test::noise;
using mooncaf::test::secret;
using namespace std::chrono_literals;

namespace {

/// Of this host, and not where its processes meet at a Unix socket.
const std::string far = "127.0.0.2";

struct far_store {
  std::unique_ptr<directory_shards> directory;
  std::unique_ptr<segment_mount> holder;

  explicit far_store(std::uint32_t shards = 1, duration greeting = 60s) {
    directory_server_options o;
    o.host = far;
    o.secret = secret;
    o.recovery = {};
    o.greeting = greeting;
    o.tenants = {{"a", key_a, {4 * MiB, 1000}}, {"b", key_b, {4 * MiB, 1000}}};
    auto d = directory_shards::start(o, shards);
    REQUIRE_MESSAGE(d, (d ? "" : d.error().detail));
    directory = std::move(*d);
    segment_mount_options segment;
    segment.directory = address();
    segment.name = "s";
    segment.bytes = 16 * MiB;
    auto l = segment_mount::start(std::move(segment));
    REQUIRE_MESSAGE(l, (l ? "" : l.error().detail));
    holder = std::move(*l);
  }
  directory_address address(const std::string& key = secret) const {
    directory_address a;
    a.at = one_seat(far, directory->port());
    a.secret = key;
    a.own_host = "host";
    return a;
  }
  std::unique_ptr<store_client> client(const std::string& key = secret) const {
    auto c = store_client::connect({address(key), 1 * MiB});
    REQUIRE_MESSAGE(c, (c ? "" : c.error().detail));
    return std::move(*c);
  }
  unique_fd socket() const { return connected(directory->port()); }
  static unique_fd connected(std::uint16_t port) {
    auto fd = connect_tcp(*resolve_tcp(far, port));
    REQUIRE(fd);
    REQUIRE(wait_for_socket(fd->get(), POLLOUT, clock_type::now() + 60s));
    return std::move(*fd);
  }
};

bool holds(store_client& c, const std::string& key, const std::vector<std::byte>& bytes) {
  const std::string_view name = key;
  std::vector<std::byte> got;
  const auto codes = c.get({&name, 1}, [&](std::size_t, std::uint64_t size) {
    got.resize(size);
    return std::vector<std::span<std::byte>>{std::span{got}};
  });
  return codes.front() == store_code::ok && got == bytes;
}

bool keep_object(store_client& c, const std::string& key, const std::vector<std::byte>& bytes) {
  const outgoing_object item{key, {bytes}};
  return c.put({&item, 1}, {}).front() == store_code::ok;
}

/// What comes before the other end closes.
std::vector<std::byte> until_closed(int fd) {
  std::vector<std::byte> all(4096);
  std::size_t got = 0;
  while (got < all.size() && receive_whole(fd, std::span{all}.subspan(got, 1), clock_type::now() + 60s))
    ++got;
  all.resize(got);
  REQUIRE(wait_for_socket(fd, POLLIN, clock_type::now() + 60s));
  return all;
}

/// The client's part of the handshake that is the same with and without TLS. @returns whether it was
/// believed.
template <class Send, class Receive>
bool proved(const std::string& with, const Send& send, const Receive& receive) {
  const link_identity self{
      link_kind::store, store_wire::directory_client_node, 0, 0, store_wire::directory_node, 0};
  auto shake = handshake::initiator(with, *make_nonce(), self);
  if (!send(shake.opening())) return false;
  for (;;) {
    std::vector<std::byte> message(shake.want());
    if (!receive(message)) return false;
    const auto step = shake.feed(message);
    if (!step || !send(step->answer)) return false;
    if (step->at == handshake::progress::done) return true;
  }
}

bool proved_plainly(int fd, const std::string& with) {
  const auto limit = [] { return clock_type::now() + 60s; };
  return proved(
      with, [&](const auto& bytes) { return send_whole(fd, bytes, limit()).has_value(); },
      [&](auto& into) { return receive_whole(fd, into, limit()).has_value(); });
}

std::vector<std::byte> question(store_wire::op what, std::uint32_t version) {
  std::vector<std::byte> bytes;
  store_wire::frame out{bytes, 7, what};
  out->put(version);
  out->put_text("host");
  out->put(std::uint8_t{0});
  return bytes;
}

}  // namespace

TEST_CASE("over TCP a store answers as on one host, tenants and shards included") {
  for (const std::uint32_t shards : {1u, 2u}) {
    CAPTURE(shards);
    const far_store world{shards};
    const auto ours = world.client(), a = world.client(key_a), b = world.client(key_b);
    for (unsigned i = 0; i < 40; ++i) {
      const auto key = "key-" + std::to_string(i);
      CHECK(keep_object(*ours, key, noise(1000 + i, i)));
      CHECK(keep_object(*a, key, noise(2000 + i, i)));
      CHECK(holds(*ours, key, noise(1000 + i, i)));
      CHECK(holds(*a, key, noise(2000 + i, i)));
      CHECK_FALSE(holds(*b, key, noise(2000 + i, i)));
    }
    // An answer of many records.
    std::vector<std::string> names;
    for (std::size_t i = 0; i < 20'000; ++i)
      names.push_back("a key of some length, number " + std::to_string(i));
    const std::vector<std::string_view> keys(names.begin(), names.end());
    CHECK(a->exists(keys) == std::vector<int>(keys.size(), 0));
  }
}

TEST_CASE("many threads ask over one encrypted link, and each gets its own answer") {
  const far_store world;
  const auto client = world.client();
  for (unsigned i = 0; i < 8; i += 2)
    REQUIRE(keep_object(*client, "key-" + std::to_string(i), noise(100, i)));
  std::vector<std::thread> threads;
  std::array<int, 8> wrong{};
  for (unsigned i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const auto name = "key-" + std::to_string(i);
      const std::string_view key = name;
      for (int n = 0; n < 300; ++n) wrong[i] += client->exists({&key, 1}).front() != (i % 2 == 0 ? 1 : 0);
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == std::array<int, 8>{});
}

TEST_CASE("strangers hold up nobody, whatever they say or keep to themselves, and are shown out") {
  const far_store world{1, 1s};
  const auto client = world.client();
  REQUIRE(keep_object(*client, "key", noise(100, 1)));
  {
    std::unique_ptr<link_stream> below = std::make_unique<socket_stream>(world.socket());
    const auto tls = *tls_stream::client(below, tls_key{"a secret that nobody here knows."});
    while (tls->greet()) REQUIRE(wait_for_socket(tls->fd(), POLLIN, clock_type::now() + 60s));
    CHECK(tls->greet().error().code == ec::unauthenticated);
  }
  std::vector<unique_fd> strangers;
  const auto say = [&](std::span<const std::byte> bytes) {
    strangers.push_back(world.socket());
    // It may be closed already by what came first.
    if (!bytes.empty()) (void)send_whole(strangers.back().get(), bytes, clock_type::now() + 60s);
    CHECK(holds(*client, "key", noise(100, 1)));
  };
  const std::byte record[] = {std::byte{22}, std::byte{3}, std::byte{1},
                              std::byte{2},  std::byte{0}, std::byte{1}};
  for (std::size_t n = 0; n <= sizeof(record); ++n) say(std::span{record}.first(n));
  for (unsigned i = 0; i < 30; ++i) {
    auto bytes = noise(sizeof(record) + i * 37, i);
    if (i % 3 == 0) std::copy(std::begin(record), std::end(record) - 1, bytes.begin());
    say(bytes);
  }
  for (const auto& fd : strangers) CHECK(until_closed(fd.get()).size() < 100);
  CHECK(holds(*client, "key", noise(100, 1)));
}

TEST_CASE("another secret, and a directory of an older version, are told apart in words") {
  const far_store world;
  auto to = world.address("another secret, 32 bytes of it...");
  const auto refused = directory_link::connect(to);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ec::unauthenticated);
  CHECK(refused.error().detail.find("another cluster secret, or a token") != std::string::npos);
  CHECK(refused.error().detail.find(far) != std::string::npos);
  for (const bool answers : {true, false}) {
    CAPTURE(answers);
    const auto listener = *listen_tcp(*resolve_tcp(far, 0));
    std::thread older{[&] {
      wait_for_socket(listener.get(), POLLIN, clock_type::now() + 60s);
      const unique_fd fd{::accept(listener.get(), nullptr, nullptr)};
      std::byte first[32];
      (void)receive_whole(fd.get(), first, clock_type::now() + 60s);
      if (answers)
        (void)send_whole(fd.get(), std::vector<std::byte>(32, std::byte{99}), clock_type::now() + 60s);
    }};
    to.at = one_seat(far, bound_port(listener.get()));
    const auto made = directory_link::connect(to);
    older.join();
    REQUIRE_FALSE(made);
    CHECK(made.error().code == (answers ? ec::incompatible : ec::peer_lost));
    CHECK(made.error().detail.find("older version") != std::string::npos);
  }
}

TEST_CASE("a client of an older version, without TLS, hears that it is, and nothing else") {
  for (const std::uint32_t shards : {1u, 2u}) {
    const far_store world{shards};
    const auto limit = clock_type::now() + 60s;
    for (const auto& with : {secret, key_b}) {
      const auto fd = world.socket();
      REQUIRE(proved_plainly(fd.get(), with));
      REQUIRE(send_whole(fd.get(), question(store_wire::op::hello, 16), limit));
      const auto answer = until_closed(fd.get());
      REQUIRE(answer.size() == store_wire::header_bytes + sizeof(std::uint32_t));
      byte_reader in{std::span{answer}.subspan(store_wire::header_bytes)};
      CHECK(in.get<std::uint32_t>() == store_wire::newest);
    }
    const auto pushy = world.socket();
    REQUIRE(proved_plainly(pushy.get(), secret));
    REQUIRE(send_whole(pushy.get(), question(store_wire::op::counts, store_wire::newest), limit));
    CHECK(until_closed(pushy.get()).empty());
    CHECK_FALSE(proved_plainly(world.socket().get(), "another secret, 32 bytes of it..."));
  }
}

TEST_CASE("nobody passes on another's proof under a key of his own") {
  const far_store world;
  for (const auto& inside : {key_a, key_b, secret}) {
    std::unique_ptr<link_stream> below = std::make_unique<socket_stream>(world.socket());
    const auto tls = *tls_stream::client(below, tls_key{key_a});
    const auto waited = [&] {
      return wait_for_socket(tls->fd(), tls->events(POLLIN), clock_type::now() + 60s);
    };
    const bool believed = proved(
        inside,
        [&](std::span<const std::byte> bytes) {
          while (!bytes.empty()) {
            const auto sent = tls->send(bytes);
            if (sent.at == link_stream::state::again && !waited()) return false;
            if (sent.at == link_stream::state::broken) return false;
            bytes = bytes.subspan(sent.bytes);
          }
          return true;
        },
        [&](std::span<std::byte> into) {
          while (!into.empty()) {
            const auto got = tls->receive(into);
            if (got.at == link_stream::state::again && !waited()) return false;
            if (got.at == link_stream::state::broken || got.at == link_stream::state::closed) return false;
            into = into.subspan(got.bytes);
          }
          return true;
        });
    CHECK(believed == (inside == key_a));
  }
}
