#include "transport/net/tls_stream.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace mooncaf;
using state = link_stream::state;

namespace {

const tls_key key{"0123456789abcdef0123456789abcdef"};
const tls_key other{"another secret, of somebody else"};

/// One direction of a connection in memory.
struct wire {
  std::deque<std::byte> bytes;
  std::vector<std::byte> all;  ///< that ever went in
  bool over = false;
  std::size_t takes = std::numeric_limits<std::size_t>::max();  ///< so many bytes; then it is full
};

/// Takes and gives as many bytes at a time as chance says, sometimes none. Seed 0: all of them.
class chancy_link final : public link_stream {
 public:
  chancy_link(wire& out, wire& in, unsigned seed) : out_(out), in_(in), chance_(seed != 0), random_(seed) {}
  passed send(std::span<const std::byte> bytes) override {
    if (out_.over) return {state::broken};
    const auto n = std::min(some(bytes.size()), out_.takes);
    if (n == 0) return {state::again};
    out_.takes -= n;
    out_.bytes.insert(out_.bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    out_.all.insert(out_.all.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return {state::ok, n};
  }
  passed receive(std::span<std::byte> into) override {
    if (in_.bytes.empty()) return {in_.over ? state::closed : state::again};
    const auto n = std::min(some(into.size()), in_.bytes.size());
    if (n == 0) return {state::again};
    std::copy_n(in_.bytes.begin(), n, into.begin());
    in_.bytes.erase(in_.bytes.begin(), in_.bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return {state::ok, n};
  }
  std::string why() const override { return "the test broke it"; }
  int fd() const noexcept override { return -1; }
  void shutdown() noexcept override { out_.over = in_.over = true; }

 private:
  std::size_t some(std::size_t most) {
    if (!chance_) return most;
    return random_() % 4 == 0 ? 0 : std::min<std::size_t>(most, std::size_t{1} << random_() % 18);
  }
  wire& out_;
  wire& in_;
  bool chance_;
  std::mt19937 random_;
};

tls_stream::keyring ring(std::vector<tls_key> keys = {key}) {
  return std::make_shared<const std::vector<tls_key>>(std::move(keys));
}

/// Two tls_ends in one thread.
struct tls_ends {
  wire there, back;
  std::unique_ptr<tls_stream> client, server;

  explicit tls_ends(unsigned seed = 1, const tls_key& known = key, tls_stream::keyring keys = ring(),
                    std::uint64_t renew_after = tls_stream::records_per_key) {
    std::unique_ptr<link_stream> a = std::make_unique<chancy_link>(there, back, seed),
                                 b = std::make_unique<chancy_link>(back, there, seed * 1000);
    client = *tls_stream::client(a, known, renew_after);
    server = *tls_stream::server(b, std::move(keys), renew_after);
  }
  /// Until both are done, or one has failed.
  void greet() {
    for (int i = 0; i < 100'000; ++i) {
      const auto a = client->greet(), b = server->greet();
      if (!a || !b || (*a && *b)) return;
    }
    FAIL("the handshake does not end");
  }
};

std::vector<std::byte> noise(std::size_t n, std::mt19937& random) {
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// What comes until there is no more, and what it said then.
std::pair<std::vector<std::byte>, state> drain(tls_stream& s, int patience = 100) {
  std::vector<std::byte> all, some(5000);
  for (;;) {
    const auto got = s.receive(some);
    if (got.at == state::again && --patience > 0) continue;
    if (got.at != state::ok) return {all, got.at};
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
  }
}

void send_all(tls_stream& s, std::span<const std::byte> bytes) {
  for (int patience = 100'000; !bytes.empty() && patience > 0; --patience) {
    const auto sent = s.send(bytes);
    if (sent.at == state::ok) bytes = bytes.subspan(sent.bytes);
    else REQUIRE(sent.at == state::again);
  }
  REQUIRE(bytes.empty());
}

bool holds(std::span<const std::byte> all, std::span<const std::byte> part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

}  // namespace

TEST_CASE("bytes pass in order both ways, in whatever pieces the stream below takes and gives them") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    // Every other time keys are renewed again and again.
    tls_ends link{seed, key, ring(), seed % 2 == 0 ? tls_stream::records_per_key : 1 + seed % 5};
    std::mt19937 random{seed};
    const std::array texts{noise(random() % 300'000, random), noise(random() % 300'000, random)};
    std::array<std::vector<std::byte>, 2> got;
    std::array<std::size_t, 2> sent{};
    const std::array from{link.client.get(), link.server.get()};
    // Nobody says `greet`: sending and receiving do.
    for (int i = 0; got[0].size() < texts[0].size() || got[1].size() < texts[1].size(); ++i) {
      REQUIRE(i < 1'000'000);
      const auto way = random() % 2;
      // More bytes may have come behind those of which none were taken.
      const auto left = std::span{texts[way]}.subspan(sent[way]);
      const auto put = from[way]->send(left);
      REQUIRE((put.at == state::ok || put.at == state::again));
      sent[way] += put.bytes;
      std::vector<std::byte> some(random() % 40'000 + 1);
      const auto took = from[1 - way]->receive(some);
      REQUIRE((took.at == state::ok || took.at == state::again));
      got[way].insert(got[way].end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(took.bytes));
    }
    CHECK(got[0] == texts[0]);
    CHECK(got[1] == texts[1]);
  }
}

TEST_CASE("one thread sends while another receives, at both tls_ends of a socket") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  std::unique_ptr<link_stream> a = std::make_unique<socket_stream>(unique_fd{pair[0]}),
                               b = std::make_unique<socket_stream>(unique_fd{pair[1]});
  const std::array both{*tls_stream::client(a, key, 10), *tls_stream::server(b, ring(), 3)};
  const auto wait = [](tls_stream& s, short wanted) {
    ::pollfd one{s.fd(), s.events(wanted), 0};
    return ::poll(&one, 1, 60'000) > 0;
  };
  {
    std::thread greeting{[&] {
      while (!both[1]->greet().value_or(true)) wait(*both[1], POLLIN);
    }};
    while (!both[0]->greet().value_or(true)) wait(*both[0], POLLIN);
    greeting.join();
  }
  constexpr std::size_t total = 8 << 20;
  std::array<bool, 2> same{true, true};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random{i}, values{i + 10};
      for (std::size_t sent = 0; sent < total;) {
        const auto bytes = noise(std::min<std::size_t>(total - sent, 1 + random() % 60'000), values);
        for (auto left = std::span<const std::byte>{bytes}; !left.empty();) {
          const auto n = both[i]->send(left);
          if (n.at == state::broken || (n.at == state::again && !wait(*both[i], POLLOUT))) return;
          left = left.subspan(n.bytes);
        }
        sent += bytes.size();
      }
    });
    threads.emplace_back([&, i] {
      std::mt19937 random{i + 20}, values{1 - i + 10};
      for (std::size_t got = 0; got < total && same[i];) {
        std::vector<std::byte> some(1 + random() % 60'000);
        const auto n = both[i]->receive(some);
        if (n.at == state::again) same[i] = !both[i]->settle() || wait(*both[i], POLLIN);
        else if (n.at != state::ok) same[i] = false;
        some.resize(n.bytes);
        same[i] = same[i] && some == noise(n.bytes, values);
        got += n.bytes;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(same[0]);
  CHECK(same[1]);
}

TEST_CASE("no key encrypts more than so many records") {
  constexpr std::size_t all = 200;
  std::array<std::size_t, 2> bytes{};
  for (const bool renews : {false, true}) {
    tls_ends link{0, key, ring(), renews ? 3 : all};
    link.greet();
    const auto before = link.there.all.size();
    for (std::size_t i = 0; i < all; ++i) {
      const auto one = static_cast<std::byte>(i);
      send_all(*link.client, {&one, 1});
      std::byte got{};
      CHECK(link.server->receive({&got, 1}).bytes == 1);
      CHECK(got == one);
    }
    bytes[renews] = link.there.all.size() - before;
  }
  // Header, type of a record, and tag, around five bytes that say so.
  CHECK(bytes[1] == bytes[0] + (all - 1) / 3 * (5 + 5 + 1 + 16));
}

TEST_CASE("who does not know the key learns that and nothing else, and the server knows whose key it is") {
  const tls_key third{"a third one, 32 bytes of secret."};
  {
    tls_ends link{0, third, ring({key, other, third})};
    link.greet();
    CHECK(*link.client->greet());
    CHECK(link.server->known_key() == 2);
  }
  tls_ends link{0, third, ring({key, other})};
  link.greet();
  const auto server = link.server->greet();
  REQUIRE_FALSE(server);
  CHECK(server.error().code == ec::unauthenticated);
  const auto client = link.client->greet();
  REQUIRE_FALSE(client);
  CHECK(client.error().code == ec::unauthenticated);
  CHECK(link.client->send(bytes_of("secret")).at == state::broken);
  CHECK(drain(*link.client).second == state::broken);
  CHECK(drain(*link.server).second == state::broken);
  CHECK(drain(*link.server).first.empty());
}

TEST_CASE("an offer names its key to who knows it, and is noise to all others") {
  const auto a = *key.make_offer(), b = *key.make_offer();
  CHECK(a != b);
  for (std::size_t i = 0; i + 8 <= a.size(); ++i)
    CHECK(std::search(b.begin(), b.end(), a.begin() + static_cast<std::ptrdiff_t>(i),
                      a.begin() + static_cast<std::ptrdiff_t>(i + 8)) == b.end());
  CHECK(key.made(a));
  CHECK(key.made(b));
  CHECK_FALSE(other.made(a));
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto wrong = a;
    wrong[i] ^= 1;
    CHECK_FALSE(key.made(wrong));
    CHECK_FALSE(key.made(std::span{a}.first(i)));
  }
}

TEST_CASE("nothing that is said can be read on the way, and no two links have anything in common there") {
  const auto text = bytes_of("models/llama-70b/layer-17");
  std::array<std::vector<std::byte>, 2> seen;
  for (auto& all : seen) {
    tls_ends link;
    link.greet();
    send_all(*link.client, text);
    send_all(*link.server, text);
    CHECK(drain(*link.server).first == std::vector(text.begin(), text.end()));
    for (const auto* way : {&link.there, &link.back}) {
      all.insert(all.end(), way->all.begin(), way->all.end());
      CHECK_FALSE(holds(way->all, text));
      for (const auto* k : {&key, &other}) CHECK_FALSE(holds(way->all, std::as_bytes(k->bytes())));
    }
  }
  CHECK(seen[0] != seen[1]);
}

TEST_CASE("an end that was not said is a cut, one that was comes after all bytes") {
  for (const bool said : {true, false}) {
    CAPTURE(said);
    tls_ends link{0};
    link.greet();
    std::mt19937 random{1};
    const auto bytes = noise(100'000, random);
    send_all(*link.client, bytes);
    if (said) link.client->shutdown();
    link.there.over = true;
    const auto [got, at] = drain(*link.server);
    CHECK(got == bytes);
    CHECK(at == (said ? state::closed : state::broken));
    CHECK(drain(*link.server).second == at);
    if (said) continue;
    CHECK(link.server->why() == "the connection was cut");
    CHECK(link.server->send(bytes).at == state::broken);
  }
}

TEST_CASE("a stream that tls_ends in order says so, by `shutdown` and when it goes") {
  for (const bool goes : {true, false}) {
    CAPTURE(goes);
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    std::unique_ptr<link_stream> a = std::make_unique<socket_stream>(unique_fd{pair[0]}),
                                 b = std::make_unique<socket_stream>(unique_fd{pair[1]});
    auto client = *tls_stream::client(a, key);
    auto server = *tls_stream::server(b, ring());
    for (bool done = false; !done;) done = *client->greet() & *server->greet();
    send_all(*server, bytes_of("the last words"));
    if (goes) server.reset();
    else server->shutdown();
    const auto [got, at] = drain(*client);
    const auto text = bytes_of("the last words");
    CHECK(got == std::vector(text.begin(), text.end()));
    CHECK(at == state::closed);
    if (goes) continue;
    CHECK(drain(*server).second == state::closed);
    CHECK(server->send(text).at == state::broken);
  }
}

TEST_CASE("what it said `ok` to arrives, wherever the connection is cut, and not a byte that was altered") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    tls_ends link{seed};
    link.greet();
    // Handshakes over: from here on so many bytes go through.
    link.there.takes = random() % 120'000;
    const auto bytes = noise(150'000, random);
    std::size_t told = 0;
    for (int i = 0; i < 500; ++i) {
      const auto sent = link.client->send(std::span{bytes}.subspan(told));
      REQUIRE((sent.at == state::ok || sent.at == state::again));
      told += sent.bytes;
    }
    const bool altered = seed % 2 == 0 && !link.there.bytes.empty();
    if (altered) link.there.bytes[random() % link.there.bytes.size()] ^= std::byte{16};
    link.there.over = true;
    const auto [got, at] = drain(*link.server);
    CHECK(at == state::broken);
    CHECK(std::equal(got.begin(), got.end(), bytes.begin()));
    if (!altered) CHECK(got.size() == told);
  }
}

TEST_CASE("whatever somebody says who does not know the key, no byte of it comes out") {
  std::mt19937 random{1};
  std::vector<std::byte> hello;
  {
    wire there, back;
    std::unique_ptr<link_stream> a = std::make_unique<chancy_link>(there, back, 1);
    const auto client = *tls_stream::client(a, key);
    for (int i = 0; i < 100; ++i) REQUIRE(client->greet());
    hello = there.all;
  }
  REQUIRE(hello.size() > 100);
  for (int i = 0; i < 2000; ++i) {
    CAPTURE(i);
    auto said = i % 2 == 0 ? noise(random() % 2000, random) : hello;
    if (i % 2 != 0) {
      for (auto n = random() % 4; n > 0; --n) said[random() % said.size()] = static_cast<std::byte>(random());
      if (random() % 2 == 0) said.resize(random() % said.size());
      const auto more = noise(random() % 200, random);
      said.insert(said.end(), more.begin(), more.end());
    }
    for (const bool as_server : {true, false}) {
      wire in, out;
      in.bytes.assign(said.begin(), said.end());
      in.over = random() % 2 == 0;
      const bool over = in.over;
      std::unique_ptr<link_stream> below = std::make_unique<chancy_link>(out, in, random());
      const auto s = as_server ? *tls_stream::server(below, ring()) : *tls_stream::client(below, key);
      const auto [got, at] = drain(*s);
      CHECK(got.empty());
      CHECK((at == state::broken || (at == state::again && !over)));
      CHECK_FALSE(s->greet().value_or(false));
    }
  }
}

TEST_CASE("who speaks no TLS is told from who knows another key") {
  for (const std::string said :
       {"GET / HTTP/1.1\r\n\r\n", "\x99\x03\x01\x01\x01\x01\x01", "\x16HELLO, nobody at all here"}) {
    CAPTURE(said);
    CHECK_FALSE(tls_stream::begins(bytes_of(said)));
    wire in, out;
    const auto bytes = bytes_of(said);
    in.bytes.assign(bytes.begin(), bytes.end());
    std::unique_ptr<link_stream> below = std::make_unique<chancy_link>(out, in, 3);
    const auto s = *tls_stream::client(below, key);
    while (s->greet()) {
    }
    CHECK(s->greet().error().code == ec::incompatible);
    CHECK(s->heard());
  }
  wire in, out;
  in.over = true;
  std::unique_ptr<link_stream> below = std::make_unique<chancy_link>(out, in, 3);
  const auto s = *tls_stream::client(below, key);
  while (s->greet()) {
  }
  CHECK(s->greet().error().code == ec::peer_lost);
  CHECK_FALSE(s->heard());
}
