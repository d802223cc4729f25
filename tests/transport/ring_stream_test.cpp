#include "transport/shm/ring_stream.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "transport/shm/link_memory.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;
using state = link_stream::state;

namespace {

struct ends {
  std::unique_ptr<ring_stream> a, b;
  std::shared_ptr<ring_pair> memory = std::make_shared<ring_pair>();

  ends() {
    auto [first, second] = sockets();
    // One memory, mapped once: ThreadSanitizer sees who touches what.
    a = std::make_unique<ring_stream>(std::move(first), memory, ring_stream::side::maker);
    b = std::make_unique<ring_stream>(std::move(second), memory, ring_stream::side::guest);
  }
  static std::array<std::unique_ptr<link_stream>, 2> sockets() {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    return {std::make_unique<socket_stream>(unique_fd{pair[0]}),
            std::make_unique<socket_stream>(unique_fd{pair[1]})};
  }
};

/// As a reader does who has nothing else to do. @returns false if nothing came within a minute.
bool sleep_until_told(link_stream& s) {
  if (!s.settle()) return s.woken(false), true;
  ::pollfd one{s.fd(), s.events(POLLIN), 0};
  const bool told = ::poll(&one, 1, 60'000) > 0;
  s.woken(told);
  return told;
}
/// @returns whether its socket has something to say.
bool told(const link_stream& s) {
  ::pollfd one{s.fd(), s.events(POLLIN), 0};
  return ::poll(&one, 1, 0) > 0;
}

std::vector<std::byte> noise(std::size_t n, std::mt19937_64& random) {
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::byte> drain(link_stream& s) {
  std::vector<std::byte> all, some(1000);
  for (auto got = s.receive(some); got.at == state::ok; got = s.receive(some))
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got.bytes));
  return all;
}

}  // namespace

TEST_CASE("bytes of all sizes pass in order, around the end of the ring, while both ends sleep and wake") {
  ends link;
  constexpr std::size_t total = 24 << 20;
  const auto sizes = [](std::mt19937_64& random) {
    return std::size_t{1} << random() % 19 | random() % 64;  // more than the ring holds, too
  };
  std::thread writer{[&] {
    std::mt19937_64 random{5}, values{7};
    for (std::size_t sent = 0; sent < total;) {
      const auto bytes = noise(std::min(sizes(random), total - sent), values);
      for (auto left = std::span<const std::byte>{bytes}; !left.empty();) {
        const auto n = link.a->send(left);
        if (n.at == state::again) sleep_until_told(*link.a);
        left = left.subspan(n.bytes);
      }
      sent += bytes.size();
    }
  }};
  std::mt19937_64 random{6}, values{7};
  bool same = true;
  for (std::size_t got = 0; got < total;) {
    std::vector<std::byte> some(sizes(random));
    const auto n = link.b->receive(some);
    if (n.at == state::again) REQUIRE(sleep_until_told(*link.b));
    some.resize(n.bytes);
    same = same && some == noise(n.bytes, values);
    got += n.bytes;
  }
  writer.join();
  CHECK(same);
}

TEST_CASE("questions and answers go to and fro between two that sleep for each of them") {
  ends link;
  std::thread echo{[&] {
    std::byte one;
    for (int i = 0; i < 3000;) {
      if (link.b->receive({&one, 1}).at == state::again) sleep_until_told(*link.b);
      else if (++i, link.b->send({&one, 1}).bytes != 1) break;
    }
  }};
  bool right = true;
  for (int i = 0; i < 3000 && right; ++i) {
    const auto one = static_cast<std::byte>(i);
    std::byte back{};
    link.a->send({&one, 1});
    while (link.a->receive({&back, 1}).at == state::again && right) right = sleep_until_told(*link.a);
    right = right && back == one;
  }
  CHECK(right);
  if (!right) link.a->shutdown();
  echo.join();
}

TEST_CASE("who is awake is not rung for, who sleeps is: for any byte, or for many, or when it is asked for") {
  ends link;
  const std::vector<std::byte> some(1000);
  link.a->send(some);
  CHECK_FALSE(told(*link.b));
  CHECK_FALSE(link.b->settle());
  link.b->woken(false);
  drain(*link.b);

  CHECK(link.b->settle());
  link.a->send(some);
  CHECK(told(*link.b));
  link.b->woken(true);
  CHECK_FALSE(told(*link.b));
  drain(*link.b);

  link.b->wake_from(5000);
  CHECK(link.b->settle());
  for (int i = 0; i < 4; ++i) link.a->send(some);
  CHECK_FALSE(told(*link.b));
  link.a->send(some);
  CHECK(told(*link.b));
  link.b->woken(true);
  drain(*link.b);

  CHECK(link.b->settle());
  link.a->send(some);
  CHECK_FALSE(told(*link.b));
  link.a->wake();
  CHECK(told(*link.b));
  link.b->woken(true);
  link.a->wake();
  CHECK_FALSE(told(*link.b));
}

TEST_CASE("what was sent is there when its sender is gone, and then the end of it") {
  ends link;
  std::mt19937_64 random{3};
  const auto bytes = noise(100'000, random);
  CHECK(link.a->send(bytes).bytes == bytes.size());
  link.a.reset();
  CHECK(told(*link.b));
  link.b->woken(true);
  CHECK(link.b->send(bytes).at == state::broken);
  CHECK(link.b->why() == "it closed the connection");
  CHECK(drain(*link.b) == bytes);
  std::byte one;
  CHECK(link.b->receive({&one, 1}).at == state::closed);
}

TEST_CASE("numbers that cannot be break the connection, and nothing else") {
  std::mt19937_64 random{11};
  for (int i = 0; i < 20'000; ++i) {
    static const auto sockets = ends::sockets();
    struct borrowed final : link_stream {
      passed send(std::span<const std::byte> bytes) override { return {state::ok, bytes.size()}; }
      passed receive(std::span<std::byte>) override { return {state::again}; }
      std::string why() const override { return {}; }
      int fd() const noexcept override { return sockets[0]->fd(); }
      void shutdown() noexcept override {}
    };
    static const auto memory = std::make_shared<ring_pair>();
    for (auto* ring : {&memory->to_maker, &memory->from_maker}) ring->head = ring->tail = 0;
    ring_stream mine{std::make_unique<borrowed>(), memory, ring_stream::side::maker};
    std::vector<std::byte> some(random() % 1000 + 1);
    const auto before = mine.send(some);
    CHECK(before.bytes == some.size());
    const auto any = [&] { return random() >> random() % 64; };
    memory->from_maker.head = any();
    memory->to_maker.tail = any();
    memory->from_maker.wake_at = any();
    memory->to_maker.wake_at = any();
    memory->to_maker.wants_room = memory->from_maker.wants_room = static_cast<std::uint32_t>(any());
    const auto here = memory->from_maker.head.load();
    const auto unread = some.size() - memory->to_maker.tail.load();
    const auto sent = mine.send(some);
    CHECK((sent.at == state::broken) == (unread > byte_ring::capacity));
    const auto got = mine.receive(some);
    CHECK((got.at == state::broken) == (here > byte_ring::capacity));
    CHECK(got.bytes <= some.size());
    mine.settle();
    mine.woken(true);
    if (got.at == state::broken) CHECK(mine.why().find("cannot be") != std::string::npos);
  }
}

TEST_CASE("memory that could be cut short is not joined, and the socket is still there") {
  auto [mine, other] = ends::sockets();
  CHECK_FALSE(ring_stream::join(mine, other->fd()));
  const auto small = make_memfd("test", sizeof(ring_pair) - 1);
  REQUIRE(small);
  CHECK_FALSE(ring_stream::join(mine, small->get()));
  REQUIRE(mine);
  auto made = ring_stream::make(other);
  REQUIRE(made);
  const auto joined = ring_stream::join(mine, made->memory.get());
  REQUIRE(joined);
  const std::vector<std::byte> bytes(300'000, std::byte{9});
  CHECK(made->stream->send(bytes).bytes == byte_ring::capacity);
  CHECK(made->stream->send(bytes).at == state::again);
  CHECK(drain(**joined) == std::vector<std::byte>(byte_ring::capacity, std::byte{9}));
  CHECK(told(*made->stream));  // of the room
}
