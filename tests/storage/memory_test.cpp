#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include "storage/arena.hpp"
#include "storage/block_allocator.hpp"
#include "storage/mapped_file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;

TEST_CASE("a mapped file shows the bytes of the file and survives a move") {
  test::temp_dir dir;
  std::ofstream(dir / "weights") << "twelve bytes";
  auto file = mapped_file::open(dir / "weights");
  REQUIRE(file);
  mapped_file moved = std::move(*file);
  REQUIRE(moved.bytes().size() == 12);
  CHECK(std::memcmp(moved.bytes().data(), "twelve bytes", 12) == 0);
  CHECK(file->bytes().empty());
}

TEST_CASE("a file that cannot be mapped is refused with its path") {
  test::temp_dir dir;
  std::ofstream(dir / "empty").flush();
  const auto absent = mapped_file::open(dir / "absent");
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == ec::not_found);
  CHECK(absent.error().detail.find(dir / "absent") != std::string::npos);
  CHECK(mapped_file::open(dir / "empty").error().code == ec::invalid_argument);
  CHECK(mapped_file::open(dir.path()).error().code == ec::invalid_argument);
}

TEST_CASE("two mappings of an arena show the same bytes") {
  auto mine = arena::create("shared", 5000);
  REQUIRE(mine);
  CHECK(mine->size_bytes() == 2 * 1024 * 1024);
  void* mapped = ::mmap(nullptr, mine->size_bytes(), PROT_READ, MAP_SHARED, mine->fd(), 0);
  REQUIRE(mapped != MAP_FAILED);
  const auto* theirs = static_cast<const std::byte*>(mapped);
  CHECK(mine->base()[4999] == std::byte{0});
  mine->base()[4999] = std::byte{42};
  CHECK(theirs[4999] == std::byte{42});
  ::munmap(mapped, mine->size_bytes());
}

TEST_CASE("nobody who holds the descriptor of an arena can shrink or grow it") {
  auto a = arena::create("sealed", 4096);
  REQUIRE(a);
  CHECK(::ftruncate(a->fd(), 0) != 0);
  CHECK(::ftruncate(a->fd(), 1 << 24) != 0);
}

TEST_CASE("impossible arenas are refused") {
  CHECK(arena::create("zero", 0).error().code == ec::invalid_argument);
  CHECK(arena::create(std::string(300, 'x'), 4096).error().code == ec::invalid_argument);
  CHECK_FALSE(arena::create("huge", ~std::size_t{0}));
}

TEST_CASE("slots do not overlap and are aligned") {
  auto a = arena::create("slots", 1 << 21).value();
  auto slots = block_allocator::create(a.bytes(), 5000).value();
  CHECK(slots.shape().group_bytes() == 8192);
  CHECK(slots.total() == 256);
  std::set<std::byte*> seen;
  while (auto s = slots.allocate()) {
    CHECK(reinterpret_cast<std::uintptr_t>(s->address) % block_allocator::alignment == 0);
    CHECK(s->address == a.base() + s->offset);
    CHECK(seen.insert(s->address).second);
  }
  CHECK(seen.size() == 256);
}

TEST_CASE("freeing a slot twice, or one that does not exist, is an error and changes nothing") {
  auto a = arena::create("slots", 1 << 21).value();
  auto slots = block_allocator::create(a.bytes(), 4096).value();
  const auto s = slots.allocate().value();
  CHECK(slots.free(s.index));
  CHECK(slots.free(s.index).error().code == ec::internal);
  CHECK(slots.free(100000).error().code == ec::invalid_argument);
  CHECK(slots.free_count() == slots.total());
  CHECK(slots.allocate()->index == s.index);
}

TEST_CASE("memory that cannot hold blocks is refused") {
  auto a = arena::create("slots", 1 << 21).value();
  CHECK_FALSE(block_allocator::create(a.bytes(), 0));
  CHECK_FALSE(block_allocator::create(a.bytes(), (1 << 21) + 1));
  CHECK_FALSE(block_allocator::create(a.bytes(), ~std::size_t{0}));
  CHECK_FALSE(block_allocator::create(a.bytes().subspan(1), 4096));
  CHECK_FALSE(block_allocator::create({}, 4096));
}
