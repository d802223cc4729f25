#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "transport/shm/link_memory.hpp"

using namespace mooncaf;

TEST_CASE("records pass through the ring in order and whole, whatever their sizes") {
  auto ring = std::make_unique<ring_memory>();
  constexpr int count = 20000;
  std::thread writer{[&] {
    ring_writer out{*ring};
    std::mt19937_64 random{9};
    std::vector<std::byte> record;
    for (int i = 0; i < count; ++i) {
      record.assign(random() % 3000, static_cast<std::byte>(i));
      while (!out.put(record)) std::this_thread::yield();
    }
  }};
  ring_reader in{*ring};
  std::mt19937_64 random{9};
  std::vector<std::byte> record;
  bool whole = true;
  for (int i = 0; i < count;) {
    const auto status = in.take(record);
    if (status == ring_reader::status::empty) {
      std::this_thread::yield();
      continue;
    }
    whole &= status == ring_reader::status::record &&
             record == std::vector<std::byte>(random() % 3000, static_cast<std::byte>(i));
    ++i;
  }
  writer.join();
  CHECK(whole);
}

TEST_CASE("a full ring takes nothing more, and gives room back") {
  auto ring = std::make_unique<ring_memory>();
  ring_writer out{*ring};
  const std::vector<std::byte> record(1000);
  int put = 0;
  while (out.put(record)) ++put;
  CHECK(put == static_cast<int>(ring_memory::capacity / 1008));
  ring_reader in{*ring};
  std::vector<std::byte> got;
  CHECK(in.take(got) == ring_reader::status::record);
  CHECK(out.put(record));
}

TEST_CASE("a ring with impossible numbers is reported as broken") {
  auto ring = std::make_unique<ring_memory>();
  ring_reader in{*ring};
  std::vector<std::byte> got;
  ring->head = ring_memory::capacity + 8;
  CHECK(in.take(got) == ring_reader::status::broken);
  ring->head = 8;
  const std::uint64_t huge = ~0ull;
  std::memcpy(ring->data, &huge, 8);
  CHECK(in.take(got) == ring_reader::status::broken);
}

TEST_CASE("shared memory that could be cut short is not accepted") {
  const auto fd = make_memfd("test", 8192);
  REQUIRE(fd);
  CHECK(check_memfd(fd->get(), 8192));
  CHECK(!check_memfd(fd->get(), 8193));
  CHECK(!check_memfd(0, 1));
}
