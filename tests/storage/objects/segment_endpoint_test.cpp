#include "storage/objects/segment/segment_endpoint.hpp"

#include <doctest/doctest.h>

#include <array>
#include <deque>
#include <random>

#include "runtime/base/hash.hpp"
#include "storage/objects/client/endpoint_client.hpp"
#include "tests/storage/objects/secrets.hpp"
#include "transport/net/socket.hpp"

using namespace mooncaf;
using mooncaf::test::secret;
using namespace std::chrono_literals;
using store_wire::entry;

namespace {

/// A segment that nobody mounts: what the directory would say of it the test does.
struct served_memory {
  explicit served_memory(std::size_t bytes) : memory(bytes), ledger(memory) {
    std::mt19937_64 random{1};
    for (auto& b : memory) b = static_cast<std::byte>(random());
    ledger.with([](segment_ledger& l) { l.begin(7); });
    auto opened = segment_endpoint::open(secret, "127.0.0.1", 0, ledger);
    REQUIRE(opened);
    endpoint = std::move(*opened);
  }
  template <class Rest>
  void say(entry kind, std::uint64_t ticket, const Rest& rest) {
    std::vector<std::byte> told{std::byte{0}};
    byte_writer out{told};
    out.put(static_cast<std::uint8_t>(kind));
    out.put(std::uint32_t{7});
    out.put(ticket);
    rest(out);
    CHECK(ledger.with([&](segment_ledger& l) { return l.apply(told, clock_type::now()).understood; }));
  }
  void reserve(std::uint64_t ticket, std::uint64_t offset, std::uint64_t bytes, std::string_view tenant) {
    say(entry::reserved, ticket, [&](byte_writer& out) {
      out.put(offset);
      out.put(bytes);
      out.put_text(tenant);
    });
  }
  void publish(std::uint64_t ticket, std::uint64_t offset, std::uint64_t bytes) {
    say(entry::published, ticket, [&](byte_writer& out) {
      segment_record r;
      r.ticket = r.version = ticket;
      r.size = r.object_size = bytes;
      r.checksum = checksum64(part(offset, bytes));
      out.put(offset);
      store_wire::put_published(out, r, "key of " + std::to_string(ticket), "");
    });
  }
  void forget(std::uint64_t ticket, std::uint64_t offset) {
    say(entry::freed, ticket, [&](byte_writer& out) {
      out.put(offset);
      out.put(std::int64_t{0});
    });
  }
  std::span<std::byte> part(std::uint64_t offset, std::uint64_t bytes) {
    return std::span{memory}.subspan(offset, bytes);
  }

  std::vector<std::byte> memory;
  shared_ledger ledger;
  std::unique_ptr<segment_endpoint> endpoint;
};

endpoint_pass pass_of(std::string_view who, std::uint64_t incarnation = 1) {
  const endpoint_wire::greeting g{incarnation, std::string{who}};
  return {g, endpoint_wire::endpoint_key(secret, g)};
}

}  // namespace

TEST_CASE(
    "who knows the store's key reads through an endpoint what is published, and neither the rest nor "
    "writes") {
  served_memory world{1 * MiB};
  endpoint_client client{"127.0.0.1", world.endpoint->port()};
  const auto pass = pass_of(endpoint_wire::everyone);
  const auto read = [&](std::uint64_t offset, std::uint64_t bytes) {
    std::vector<std::byte> to(bytes);
    const std::span<std::byte> all{to};
    const auto sum = client.read(pass, offset, {&all, 1});
    if (sum) {
      CHECK(*sum == checksum64(to));
      CHECK(std::ranges::equal(to, world.part(offset, bytes)));
    } else {
      CHECK(sum.error() == ec::not_found);
    }
    return sum.has_value();
  };
  world.reserve(1, 0, 700'000, "");
  world.reserve(2, 700'000, 1000, "tenant");
  CHECK_FALSE(read(0, 700'000));
  CHECK_FALSE(read(700'000, 1000));
  world.publish(1, 0, 700'000);
  world.publish(2, 700'000, 1000);
  CHECK(read(0, 700'000));
  CHECK(read(65'000, 300'000));
  CHECK(read(700'000, 1000));
  CHECK_FALSE(read(699'000, 2000));  // of two objects
  CHECK_FALSE(read(800'000, 10));
  const std::array<std::byte, 10> lies{};
  const std::span<const std::byte> source{lies};
  CHECK_FALSE(client.write(pass, 0, {&source, 1}));
  CHECK(read(0, 700'000));
  world.forget(1, 0);
  CHECK_FALSE(read(0, 700'000));
}

TEST_CASE(
    "what a tenant reads in steps ends where the place becomes another's, or its bytes are other ones") {
  served_memory world{1 * MiB};
  constexpr std::uint64_t bytes = 300'000;
  std::vector<std::byte> to(100'000);
  const auto begin = [&] { return world.ledger.begin_read("a", 0, bytes, clock_type::now()); };
  world.reserve(1, 0, bytes, "a");
  CHECK(begin().code == store_code::not_found);
  world.publish(1, 0, bytes);
  CHECK(world.ledger.begin_read("b", 0, bytes, clock_type::now()).code == store_code::not_found);
  auto reading = begin();
  REQUIRE(reading.code == store_code::ok);
  CHECK(world.ledger.read(reading, 0, to) == store_code::ok);
  world.memory[290'000] ^=
      std::byte{1};  // one that has the memory mapped may be faster than the directory's word
  CHECK(world.ledger.read(reading, 100'000, to) == store_code::ok);
  CHECK(world.ledger.read(reading, 200'000, to) == store_code::checksum_mismatch);
  world.memory[290'000] ^= std::byte{1};
  CHECK(world.ledger.read(reading, 200'000, to) == store_code::ok);
  world.reserve(2, 0, bytes, "b");
  CHECK(world.ledger.read(reading, 0, to) == store_code::not_found);
  world.publish(2, 0, bytes);
  CHECK(world.ledger.read(reading, 0, to) == store_code::not_found);
}

TEST_CASE(
    "a tenant that takes all places at an endpoint gives way to others, and who says nothing keeps nobody "
    "out") {
  served_memory world{64 * KiB};
  std::uint64_t ticket = 1;
  for (const std::string tenant : {"greedy", "other", "third"}) {  // a block of each, to be written
    world.reserve(ticket, (ticket - 1) * 4096, 4096, tenant);
    ++ticket;
  }
  const auto port = world.endpoint->port();
  const auto served = [](endpoint_client& v, const std::string& tenant, std::uint64_t offset) {
    const std::array<std::byte, 16> bytes{};
    const std::span<const std::byte> all{bytes};
    return v.write(pass_of(tenant), offset, {&all, 1}).has_value();
  };
  std::deque<endpoint_client> greedy, others;
  const auto come = [&](std::deque<endpoint_client>& to) -> endpoint_client& {
    return to.emplace_back("127.0.0.1", port);
  };
  std::vector<unique_fd> silent;
  for (int i = 0; i < 100; ++i) {
    auto fd = connect_tcp(*resolve_tcp("127.0.0.1", port));
    REQUIRE(fd);
    silent.push_back(std::move(*fd));
  }
  for (std::size_t i = 0; i < segment_endpoint::connections_max; ++i)
    REQUIRE(served(come(greedy), "greedy", 0));
  CHECK_FALSE(served(come(greedy), "greedy", 0));
  for (std::size_t i = 0; i < segment_endpoint::connections_max / 2; ++i)
    REQUIRE(served(come(others), "other", 4096));
  CHECK_FALSE(served(come(others), "other", 4096));  // now both have as many
  CHECK(served(come(others), "third", 8192));
  CHECK(served(greedy[segment_endpoint::connections_max - 1], "greedy", 0));
}
