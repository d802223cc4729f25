#include "storage/objects/client/remote_mover.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "runtime/base/hash.hpp"
#include "tests/storage/objects/secrets.hpp"

using namespace mooncaf;
using mooncaf::test::secret;

namespace {

/// A process that holds memory, and one that reaches it over TCP.
struct two_hosts {
  two_hosts() : memory(24 * MiB) {
    data_plane_options o;
    o.node = node_id{7};
    o.cluster_secret = secret;
    o.shm = false;
    auto plane = data_plane::start(std::move(o), [](const landing&) {});
    REQUIRE_MESSAGE(plane, (plane ? "" : plane.error().detail));
    holder = std::move(*plane);
    const auto known = holder->register_region(memory);
    REQUIRE(known);
    region = known->id;
    auto made = remote_mover::start(secret, 1 * MiB, registered);
    REQUIRE_MESSAGE(made, (made ? "" : made.error().detail));
    mover = std::move(*made);
    REQUIRE(mover->add_peer(holder->local_announcement()));
  }
  remote_mover::place at(std::uint64_t offset) const { return {node_id{7}, region, offset}; }

  std::shared_ptr<registered_memory> registered = std::make_shared<registered_memory>();
  std::vector<std::byte> memory;
  std::unique_ptr<data_plane> holder;
  region_id region;
  std::unique_ptr<remote_mover> mover;
};

/// Cuts bytes into so many pieces, some of them empty.
template <class Byte>
std::vector<std::span<Byte>> cut(std::span<Byte> all, std::size_t pieces, std::mt19937_64& random) {
  std::vector<std::size_t> ends{all.size()};
  while (ends.size() < pieces) ends.push_back(random() % (all.size() + 1));
  std::sort(ends.begin(), ends.end());
  std::vector<std::span<Byte>> cut;
  std::size_t at = 0;
  for (const auto end : ends) cut.push_back(all.subspan(std::exchange(at, end), end - at));
  return cut;
}

}  // namespace

TEST_CASE("bytes of any length in any pieces are there and back what they were, mounted or staged") {
  const two_hosts world;
  std::mt19937_64 random{5};
  for (const std::size_t size : {1ul, 4'095ul, 65'535ul, 65'536ul, 1'000'003ul, 2ul * MiB, 9ul * MiB + 17}) {
    for (const std::size_t pieces : {1ul, 3ul, 16ul, 17ul}) {
      CAPTURE(size);
      CAPTURE(pieces);
      std::vector<std::byte> from(size), to(size + 1, std::byte{0x5A});
      for (auto& b : from) b = static_cast<std::byte>(random());
      const auto offset = random() % (world.memory.size() - size);
      const auto out = cut(std::span<const std::byte>{from}, pieces, random);
      remote_mover::order order{world.at(offset), out};
      world.mover->write({&order, 1});
      const auto& written = order.sum;
      REQUIRE_MESSAGE(written, (written ? "" : written.error().detail));
      CHECK(order.settled);
      CHECK(*written == checksum64(from));
      CHECK(std::equal(from.begin(), from.end(), world.memory.begin() + static_cast<std::ptrdiff_t>(offset)));
      const auto in = cut(std::span{to}.first(size), pieces, random);
      const auto read = world.mover->read(world.at(offset), in);
      REQUIRE_MESSAGE(read, (read ? "" : read.error().detail));
      CHECK(*read == *written);
      CHECK(std::equal(from.begin(), from.end(), to.begin()));
      CHECK(to.back() == std::byte{0x5A});
    }
  }
}

TEST_CASE(
    "memory that the caller has registered is read and written where it lies, in any number of pieces") {
  const two_hosts world;
  std::mt19937_64 random{11};
  std::vector<std::byte> own(4 * MiB);
  const std::span<std::byte> all{own};
  for (auto& b : own) b = static_cast<std::byte>(random());
  const auto address = reinterpret_cast<std::uint64_t>(own.data());
  const auto there_and_back = [&](std::uint64_t size) {
    const auto kept = std::vector<std::byte>(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(size));
    auto out = cut(std::span<const std::byte>{own}.first(size), 40, random);
    remote_mover::order order{world.at(0), out};
    world.mover->write({&order, 1});
    REQUIRE_MESSAGE(order.sum, (order.sum ? "" : order.sum.error().detail));
    std::fill(own.begin(), own.end(), std::byte{0x33});
    const auto in = cut(all.subspan(own.size() - size), 40, random);  // elsewhere in the same buffer
    const auto read = world.mover->read(world.at(0), in);
    REQUIRE_MESSAGE(read, (read ? "" : read.error().detail));
    CHECK(*read == *order.sum);
    CHECK(std::equal(kept.begin(), kept.end(), own.end() - static_cast<std::ptrdiff_t>(size)));
    CHECK(std::count(own.begin(), own.end() - static_cast<std::ptrdiff_t>(size), std::byte{0x33}) ==
          static_cast<std::ptrdiff_t>(own.size() - size));
  };
  there_and_back(1 * MiB);
  CHECK(world.mover->staged_bytes() == 2 * MiB);
  REQUIRE(world.registered->add(address, own.size()));
  for (int i = 0; i < 10; ++i) there_and_back(256 * KiB + random() % (1 * MiB));
  CHECK(world.mover->staged_bytes() == 2 * MiB);
  // Of memory that is registered in part, and of a buffer that is not registered any more, nothing is assumed.
  REQUIRE(world.registered->drop(address));
  REQUIRE(world.registered->add(address, 512 * KiB));
  there_and_back(1 * MiB);
  CHECK(world.mover->staged_bytes() == 4 * MiB);
  REQUIRE(world.registered->drop(address));
  REQUIRE(world.registered->add(address, own.size()));
  there_and_back(1 * MiB);
  CHECK(world.mover->staged_bytes() == 4 * MiB);
}

TEST_CASE("what is refused names its cause, and the mover goes on, with all of its memory") {
  const two_hosts world;
  std::vector<std::byte> bytes(3 * MiB);
  const std::span<std::byte> whole{bytes};
  const std::span<const std::byte> source{bytes};
  for (int i = 0; i < 50; ++i) {
    const auto beyond = world.memory.size() - 1 * MiB;  // the first part fits, another does not
    CHECK(world.mover->read(world.at(beyond), {&whole, 1}).error().detail.find("region") !=
          std::string::npos);
    remote_mover::order order{world.at(beyond), {&source, 1}};
    world.mover->write({&order, 1});
    CHECK_FALSE(order.sum);
    CHECK(order.settled);
  }
  CHECK(world.mover->read(world.at(0), {&whole, 1}));
}

TEST_CASE("orders of any sizes at once land each where it belongs, and one that is refused harms no other") {
  const two_hosts world;
  std::mt19937_64 random{6};
  for (int round = 0; round < 10; ++round) {
    std::vector<std::vector<std::byte>> values(300);
    std::vector<std::span<const std::byte>> pieces(values.size());
    std::vector<remote_mover::order> orders;
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool large = random() % 50 == 0;
      values[i].resize(large ? 64 * KiB + random() % (1 * MiB) : random() % 3000);
      for (auto& b : values[i]) b = static_cast<std::byte>(random());
      pieces[i] = values[i];
      orders.push_back({world.at(i % 97 == 13 ? world.memory.size() : at), {&pieces[i], 1}});
      at += values[i].size();
    }
    REQUIRE(at < world.memory.size());
    world.mover->write(orders);
    at = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      CAPTURE(i);
      CHECK(orders[i].settled);
      if (i % 97 == 13 && !values[i].empty()) {
        CHECK_FALSE(orders[i].sum);
      } else {
        REQUIRE_MESSAGE(orders[i].sum, (orders[i].sum ? "" : orders[i].sum.error().detail));
        CHECK(*orders[i].sum == checksum64(values[i]));
        if (i % 97 != 13)
          CHECK(std::equal(values[i].begin(), values[i].end(),
                           world.memory.begin() + static_cast<std::ptrdiff_t>(at)));
      }
      at += values[i].size();
    }
  }
}

TEST_CASE("more threads than the staging memory has room for all come to an end") {
  const two_hosts world;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random{t};
      std::vector<std::byte> to(1 * MiB);
      const auto in = cut(std::span{to}, 17, random);  // so many pieces are staged
      for (int i = 0; i < 20; ++i) {
        const auto sum = world.mover->read(world.at(t * MiB), in);
        right += sum && *sum == checksum64(to);
      }
    });
  for (auto& t : threads) t.join();
  CHECK(right == 16 * 20);
}
