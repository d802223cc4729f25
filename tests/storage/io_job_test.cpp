// Blocks whose layers lie apart in memory: on disk they are what others are.

#include "storage/io_job.hpp"

#include <doctest/doctest.h>

#include <set>

#include "storage/arena.hpp"
#include "tests/storage/ssd_fixture.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

constexpr block_pieces in_layers{block_bytes / 5, 5, 4}, in_one{block_bytes};

struct slots_in {
  explicit slots_in(const block_pieces& of)
      : shape(of), slots(*block_allocator::create(memory.bytes(), of)) {}
  io_job job(io_job::kind what, const block_name& name, ticket_id load = {}) {
    return {++last, what, {name, checksum64(bytes_of(name.key, block_bytes))}, *slots.allocate(), load};
  }
  std::vector<std::byte> content(const io_job& job) const {
    std::vector<std::byte> out(block_bytes);
    gather(job.slot.address, shape, out.data());
    return out;
  }
  block_pieces shape;
  arena memory = *arena::create("pieces", 1 << 20);
  block_allocator slots;
  std::uint64_t last = 0;
};

void run(std::span<const io_job> jobs, rocksdb_tier& tier, const block_pieces& shape,
         const load_progress& progress = {}) {
  for (const auto& done : execute(jobs, tier, shape, progress)) CHECK(done.ok());
}

}  // namespace

TEST_CASE("blocks in pieces are on disk as others are, and come back into any shape") {
  test::temp_dir dir;
  auto options = options_for(dir / "ssd");
  options.part_bytes = 2 * in_layers.bytes;
  const auto tier = open(options);
  const auto names = chains(2, 3);
  for (const auto& from : {in_layers, in_one}) {
    for (const auto& to : {in_layers, in_one}) {
      slots_in writer{from}, reader{to};
      std::vector<io_job> writes, reads, load;
      for (const auto& name : names) {
        writes.push_back(writer.job(io_job::kind::write, name));
        scatter(bytes_of(name.key, block_bytes).data(), from, writes.back().slot.address);
        CHECK(checksum64(writes.back().slot.address, from) == writes.back().block.checksum);
        reads.push_back(reader.job(io_job::kind::read, name));
        load.push_back(reader.job(io_job::kind::read, name, ticket_id{7}));
      }
      run(writes, *tier, from);
      run(reads, *tier, to);
      // Who is told of parts finds them where they belong at that moment.
      std::uint32_t told = 0;
      run(load, *tier, to, [&](ticket_id, std::optional<std::uint32_t> parts) {
        REQUIRE(parts);
        told = *parts;
        const auto there = std::min(block_bytes, told * options.part_bytes);
        for (const auto& job : load) {
          const auto wanted = bytes_of(job.block.name.key, block_bytes), got = reader.content(job);
          CHECK(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(there), wanted.begin()));
        }
        return true;
      });
      CHECK(told == 3);
      for (const auto& jobs : {reads, load})
        for (const auto& job : jobs) CHECK(reader.content(job) == bytes_of(job.block.name.key, block_bytes));
    }
  }
}

TEST_CASE("pieces of different slots do not overlap, and whole groups are used alone") {
  auto memory = *arena::create("pieces", 1 << 20);
  auto slots = *block_allocator::create(memory.bytes(), in_layers);
  CHECK(slots.total() == memory.bytes().size() / in_layers.group_bytes() * in_layers.beside);
  std::set<std::size_t> pieces;
  while (const auto s = slots.allocate())
    in_layers.each(0, block_bytes, [&](std::size_t at, std::size_t length) {
      CHECK(length == in_layers.bytes);
      CHECK(s->offset + at + length <= memory.bytes().size());
      CHECK(pieces.insert(s->offset + at).second);
    });
  CHECK(pieces.size() == slots.total() * in_layers.count);
  for (auto i = pieces.begin(), next = std::next(i); next != pieces.end(); i = next++)
    CHECK(*next - *i >= in_layers.bytes);
  const auto group = block_allocator::create(memory.bytes().first(in_layers.group_bytes() - 1), in_layers);
  REQUIRE_FALSE(group);
  CHECK(group.error().detail.find("4 blocks") != std::string::npos);
}
