#pragma once
// A tiered store over a disk that does what a test tells it.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "storage/tiered_store.hpp"
#include "tests/storage/block_maker.hpp"

namespace mooncaf::test {

using namespace std::chrono_literals;

constexpr std::size_t tiered_block_bytes = 256;
constexpr time_point later = time_point{} + 10s;
const owner_id alice{11}, bob{12};

/// A disk that does what jobs say, at once, and fails when told to.
struct fake_disk {
  block_pieces shape{tiered_block_bytes};
  std::map<block_key, std::vector<std::byte>> blocks;
  std::map<block_key, std::size_t> written;  ///< how often
  bool writes_fail = false;
  std::size_t writes = 0;

  io_result run(const io_job& job) {
    const auto& key = job.block.name.key;
    switch (job.what) {
      case io_job::kind::write:
        ++writes;
        if (writes_fail) return {job.id, {ec::io_error, "told to fail"}};
        ++written[key];
        blocks[key].resize(shape.block_bytes());
        gather(job.slot.address, shape, blocks[key].data());
        return {job.id, {}};
      case io_job::kind::read: {
        const auto it = blocks.find(key);
        if (it == blocks.end()) return {job.id, {ec::not_found, "gone"}};
        scatter(it->second.data(), shape, job.slot.address);
        return {job.id, {}};
      }
      case io_job::kind::erase:
        blocks.erase(key);
        return {job.id, {}};
    }
    return {job.id, {ec::internal, "no such job"}};
  }
};

inline tiered_store_options options_for(write_policy write, std::uint64_t ssd_capacity = 1000) {
  tiered_store_options o;
  o.ssd = true;
  o.write = write;
  o.ssd_capacity_blocks = ssd_capacity;
  return o;
}

struct tiered_fixture {
  /// @param shape  of blocks of `tiered_block_bytes`; only those in one piece can be written here.
  tiered_fixture(std::size_t slots, const tiered_store_options& options,
                 const block_pieces& shape = {tiered_block_bytes})
      : memory(pool::make(slots, shape)), store(memory.slots, options, tree) {
    disk.shape = shape;
  }

  void write(owner_id owner, const std::vector<block_name>& names, std::size_t from = 0) {
    const auto slots = store.reserve(owner, names.size() - from, later);
    REQUIRE_MESSAGE(slots, to_string(slots.error()));
    for (std::size_t i = from; i < names.size(); ++i) {
      const auto& slot = (*slots)[i - from];
      fill({slot.address, tiered_block_bytes}, names[i].key);
      REQUIRE(store.commit(owner, slot.index, names[i], checksum64({slot.address, tiered_block_bytes})));
    }
  }
  void drain() {
    for (auto jobs = store.take_io_jobs(); !jobs.empty(); jobs = store.take_io_jobs()) {
      std::vector<io_result> done;
      for (const auto& job : jobs) done.push_back(disk.run(job));
      store.complete(done);
    }
  }
  void check() {
    std::string why;
    const bool consistent = store.consistent(&why);
    CAPTURE(why);
    CHECK(consistent);
  }
  /// Puts prompts of other tenants through the store until nothing else is in DRAM.
  void push_out(int salt) {
    const auto total = static_cast<int>(store.integrity().total);
    for (int i = 0; i < 2 * total; ++i) {
      write(owner_id{500}, prompt({1000 * salt + i}));
      store.release_all(owner_id{500});
      drain();
    }
  }

  pool memory;
  std::shared_ptr<prefix_tree> tree = std::make_shared<prefix_tree>();
  tiered_store store;
  fake_disk disk;
};

inline void check_content(const std::vector<pinned_block>& blocks) {
  for (const auto& b : blocks) {
    const std::span<std::byte> bytes{b.slot.address, tiered_block_bytes};
    CHECK(checksum64(bytes) == b.checksum);
    CHECK(std::ranges::equal(bytes, bytes_of(b.key, tiered_block_bytes)));
  }
}

}  // namespace mooncaf::test
