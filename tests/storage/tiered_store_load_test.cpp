// Loads: blocks that are read from the SSD into slots which a request has reserved.

#include <doctest/doctest.h>

#include <algorithm>

#include "storage/tiered_store.hpp"
#include "tests/storage/tiered_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

/// Three blocks on SSD alone, and slots of bob's for them and one more.
struct load_fixture : tiered_fixture {
  load_fixture() : tiered_fixture(16, options_for(write_policy::write_back)) {
    write(alice, names);
    store.release_all(alice);
    push_out(1);
    REQUIRE(store.match(keys).ssd == 3);
    const auto given = store.reserve(bob, 4, later).value();
    for (const auto& s : given) slots.push_back(s.index);
  }
  std::span<const std::uint32_t> three() const { return std::span{slots}.first(3); }

  std::vector<block_name> names = prompt({1, 2, 3});
  std::vector<block_key> keys = keys_of(names);
  std::vector<std::uint32_t> slots;
};

}  // namespace

TEST_CASE_FIXTURE(load_fixture, "a load reads into the slots it was given, all its blocks in one turn") {
  const auto ticket = store.load(keys, three(), bob, later);
  REQUIRE(ticket);
  check();
  const auto jobs = store.take_io_jobs(1);
  REQUIRE(jobs.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(jobs[i].load == *ticket);
    CHECK(jobs[i].slot.index == slots[i]);
  }
  // Who wants the same waits for it.
  const auto joined = store.pin(keys, owner_id{13}, later);
  REQUIRE(joined->ticket);
  CHECK(store.ssd_stats().reads_pending == 3);
  std::vector<io_result> done;
  for (const auto& j : jobs) done.push_back(disk.run(j));
  store.complete(done);
  drain();
  check();
  const auto ready = store.take_ready();
  REQUIRE(ready.size() == 2);
  for (const auto& r : ready) {
    REQUIRE(r.pinned.blocks.size() == 3);
    check_content(r.pinned.blocks);
    for (std::size_t i = 0; i < 3; ++i) CHECK(r.pinned.blocks[i].slot.index == slots[i]);
  }
  CHECK(store.match(keys).dram == 3);
  store.release_all(bob);
  store.release_all(owner_id{13});
  drain();
  check();
  CHECK(store.integrity().reserved + store.integrity().pinned + store.integrity().owners == 0);
}

TEST_CASE_FIXTURE(load_fixture, "a load whose owner ends leaves its slots to the disk until that is done") {
  REQUIRE(store.load(keys, three(), bob, later));
  const auto jobs = store.take_io_jobs();
  store.release_all(bob);
  check();
  // Whatever others reserve meanwhile, these slots are not among it.
  const auto others = store.reserve(alice, store.integrity().free, later);
  REQUIRE(others);
  for (const auto& s : *others) CHECK(std::ranges::find(three(), s.index) == three().end());
  std::vector<io_result> done;
  for (const auto& j : jobs) done.push_back(disk.run(j));
  store.complete(done);
  CHECK(store.take_ready().empty());
  check();
  CHECK(store.match(keys).dram == 3);  // what was read is of use to others
  store.release_all(alice);
  drain();
  CHECK(store.integrity().reserved + store.integrity().pinned + store.integrity().owners == 0);
}

TEST_CASE_FIXTURE(load_fixture,
                  "a load that is given up while it is read gives the slots back, and loses nothing on SSD") {
  const auto ticket = store.load(keys, three(), bob, later);
  REQUIRE(ticket);
  std::vector<io_result> done;
  for (const auto& j : store.take_io_jobs()) done.push_back({j.id, {ec::cancelled, "nobody waits for it"}});
  store.complete(done);
  drain();
  check();
  const auto ready = store.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].pinned.blocks.empty());
  CHECK(store.match(keys).ssd == 3);
  CHECK(store.ssd_stats().promotion_failures == 0);
  CHECK(store.integrity().reserved == 4);  // bob's
  // Who joined a load gets what it wants when that is given up.
  REQUIRE(store.load(keys, three(), bob, later));
  REQUIRE(store.pin(std::span{keys}.first(2), owner_id{13}, later)->ticket);
  done.clear();
  for (const auto& j : store.take_io_jobs()) done.push_back({j.id, {ec::cancelled, "nobody waits for it"}});
  store.complete(done);
  check();
  store.release_all(bob);
  check();
  drain();
  const auto others = store.take_ready();
  REQUIRE(others.size() == 2);
  CHECK(others[1].owner == owner_id{13});
  REQUIRE(others[1].pinned.blocks.size() == 2);
  check_content(others[1].pinned.blocks);
  CHECK(store.match(keys).dram == 2);
  store.release_all(owner_id{13});
  CHECK(store.integrity().reserved + store.integrity().pinned + store.integrity().owners == 0);
}

TEST_CASE_FIXTURE(load_fixture,
                  "what a load cannot read is its owner's slot again, what is good is published") {
  disk.blocks.erase(names[1].key);
  const auto before = store.integrity().reserved;
  REQUIRE(store.load(keys, three(), bob, later));
  CHECK(store.integrity().reserved == before);
  drain();
  const auto ready = store.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].pinned.blocks.size() == 1);
  check_content(ready[0].pinned.blocks);
  CHECK(store.match(keys).total() == 1);
  CHECK(store.integrity().reserved == 2);
  store.release_all(bob);
  check();
  CHECK(store.integrity().reserved + store.integrity().private_ + store.integrity().pinned == 0);
}

TEST_CASE_FIXTURE(load_fixture, "a block that somebody computes while it is loaded stays where each has it") {
  REQUIRE(store.load(keys, three(), bob, later));
  write(alice, {names[0]});
  drain();
  const auto ready = store.take_ready();
  REQUIRE(ready.size() == 1);
  REQUIRE(ready[0].pinned.blocks.size() == 3);
  check_content(ready[0].pinned.blocks);
  // Bob goes on with the copy that he has: nobody else may get its slot.
  CHECK(ready[0].pinned.blocks[0].slot.index != slots[0]);
  CHECK(store.integrity().private_ == 1);
  CHECK(checksum64({store.slot(slots[0]).address, tiered_block_bytes}) == ready[0].pinned.blocks[0].checksum);
  store.release_all(bob);
  store.release_all(alice);
  check();
  CHECK(store.integrity().private_ + store.integrity().owners == 0);
}

TEST_CASE_FIXTURE(load_fixture, "a load of what is not on SSD alone, or into slots of another, is refused") {
  CHECK(store.load(keys, three(), alice, later).error() == ec::not_found);
  CHECK(store.load(keys, {}, bob, later).error() == ec::not_found);
  CHECK(store.load(std::vector{block_key{5, 5}}, three().first(1), bob, later).error() == ec::unavailable);
  REQUIRE(store.pin(keys, alice, later)->ticket);  // reads them already
  CHECK(store.load(keys, three(), bob, later).error() == ec::unavailable);
  drain();
  CHECK(store.load(keys, three(), bob, later).error() == ec::unavailable);
  check();
  store.release_all(alice);
  store.release_all(bob);
  CHECK(store.integrity().owners == 0);
}
