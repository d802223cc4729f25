#include "storage/tiered_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "tests/storage/tiered_world.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

TEST_CASE("without an SSD no job is ever made") {
  tiered_fixture f(4, {});
  f.write(alice, prompt({1, 2, 3}));
  f.store.release_all(alice);
  f.write(alice, prompt({4, 5, 6}));
  CHECK(f.store.take_io_jobs().empty());
  CHECK(f.store.flush() == 0);
  CHECK(f.store.match(keys_of(prompt({1, 2, 3}))).total() <= 1);
  f.check();
}

TEST_CASE("write-through puts a block on SSD when it is committed, its prefix first") {
  tiered_fixture f(8, options_for(write_policy::write_through));
  f.write(alice, prompt({1, 2, 3}));
  const auto jobs = f.store.take_io_jobs();
  CHECK(jobs.size() >= 2);
  for (std::size_t i = 0; i < jobs.size(); ++i) CHECK(jobs[i].block.name.depth == i);
  std::vector<io_result> done;
  for (const auto& j : jobs) done.push_back(f.disk.run(j));
  f.store.complete(done);
  f.drain();
  CHECK(f.disk.blocks.size() == 3);
  CHECK(f.store.ssd_stats().ssd_blocks == 3);
  f.check();
}

TEST_CASE("what is on SSD leaves memory before what waits to be written, though that was used longer ago") {
  tiered_fixture f(12, options_for(write_policy::write_through));  // three writes at once
  const auto waiting = prompt({1, 2, 3, 4, 5, 6}), written = prompt({7, 8, 9, 10});
  f.write(alice, written);
  f.drain();
  f.write(alice, waiting);
  const auto jobs = f.store.take_io_jobs();
  REQUIRE(jobs.size() == 3);  // the disk takes its time
  f.store.release_all(alice);
  const auto used = f.store.pin(keys_of(written), bob, later);
  REQUIRE(used);
  f.store.release_all(bob);
  f.write(bob, prompt({11, 12, 13, 14}));
  CHECK(f.store.match(keys_of(waiting)).dram == 6);
  CHECK(f.store.match(keys_of(written)).ssd == 2);
  CHECK(f.store.stats().evictions == 2);
  CHECK(f.store.stats().evictions_lost == 0);
  // When nothing else may leave, it does.
  f.write(bob, prompt({15, 16, 17, 18}));
  CHECK(f.store.stats().evictions_lost > 0);
  f.check();
}

TEST_CASE("write-back writes a block when it leaves DRAM, and it is found on SSD from then on") {
  tiered_fixture f(16, options_for(write_policy::write_back));
  const auto a = prompt({1, 2, 3});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  CHECK(f.disk.blocks.empty());
  f.store.drain_events();
  f.push_out(1);
  const auto where = f.store.match(keys_of(a));
  CHECK(where.dram == 0);
  CHECK(where.ssd == 3);
  std::vector<block_key> moved;
  for (const auto& e : f.store.drain_events()) {
    if (e.what == block_change::moved && e.tier == storage_tier::ssd) moved.push_back(e.name.key);
    CHECK_FALSE((e.what == block_change::removed && e.name.key == a[0].key));
  }
  for (const auto& n : a) CHECK(std::ranges::count(moved, n.key) == 1);
  f.check();
}

TEST_CASE("write-through-selective writes what is used often and drops the rest") {
  auto options = options_for(write_policy::write_through_selective);
  options.selective_hits = 3;
  tiered_fixture f(16, options);
  const auto hot = prompt({1, 2}), cold = prompt({8, 9});
  f.write(alice, hot);
  f.write(alice, cold);
  for (int i = 0; i < 2; ++i) {
    const auto hit = f.store.pin(keys_of(hot), bob, later);
    f.drain();
    CHECK(f.disk.blocks.size() == (i == 0 ? 0 : 2));
    f.store.release_all(bob);
  }
  f.store.release_all(alice);
  f.push_out(1);
  CHECK(f.store.match(keys_of(hot)).ssd == 2);
  CHECK(f.store.match(keys_of(cold)).total() == 0);
  f.check();
}

TEST_CASE("what the SSD has is not written again, however often it comes to memory and has to leave") {
  for (const auto policy :
       {write_policy::write_through, write_policy::write_through_selective, write_policy::write_back}) {
    CAPTURE(static_cast<int>(policy));
    tiered_fixture f(16, options_for(policy));
    const auto a = prompt({1, 2, 3});
    auto leave = [&, salt = 0]() mutable {
      f.store.release_all(alice);
      f.push_out(++salt);
      REQUIRE(f.store.match(keys_of(a)).dram == 0);
      REQUIRE(f.store.match(keys_of(a)).ssd == 3);
    };
    f.write(alice, a);
    for (int i = 0; i < 8; ++i)
      REQUIRE(f.store.pin(keys_of(a), alice, later));  // often enough for any policy
    f.drain();
    leave();
    for (int i = 0; i < 3; ++i) {
      REQUIRE(f.store.pin(keys_of(a), alice, later)->ticket);
      f.drain();
      REQUIRE(f.store.take_ready().at(0).from_ssd == 3);
      leave();
    }
    f.write(alice, a);  // computed once more, by somebody who did not wait for the disk
    leave();
    for (const auto& n : a) CHECK(f.disk.written[n.key] == 1);
    f.check();
  }
}

TEST_CASE("a pin that needs the SSD gets a ticket, and the blocks when they have been read") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2, 3});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  REQUIRE(f.store.match(keys_of(a)).ssd == 3);
  auto reply = f.store.pin(keys_of(a), bob, later);
  REQUIRE(reply);
  REQUIRE(reply->ticket);
  CHECK(reply->pinned.to_promote.size() == 3);
  CHECK(f.store.take_ready().empty());
  f.check();
  f.drain();
  const auto ready = f.store.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].ticket == reply->ticket);
  CHECK(ready[0].owner == bob);
  CHECK(ready[0].from_ssd == 3);
  REQUIRE(ready[0].pinned.blocks.size() == 3);
  check_content(ready[0].pinned.blocks);
  CHECK(f.store.take_ready().empty());
  // In DRAM now: the next one need not wait.
  CHECK_FALSE(f.store.pin(keys_of(a), alice, later)->ticket);
  f.check();
}

TEST_CASE("reads do not wait behind a long queue of writes, and writes are not starved by reads") {
  tiered_fixture f(32, options_for(write_policy::write_through));
  const auto a = prompt({1, 2, 3, 4});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  f.write(alice, prompt({5, 6, 7, 8}));
  REQUIRE(f.store.pin(keys_of(a), bob, later)->ticket);
  std::vector<io_job::kind> turns;
  for (int turn = 0; turn < 4; ++turn) {
    const auto jobs = f.store.take_io_jobs(2);
    REQUIRE(jobs.size() == 2);
    CHECK(jobs[0].what == jobs[1].what);
    turns.push_back(jobs[0].what);
    const io_result done[] = {f.disk.run(jobs[0]), f.disk.run(jobs[1])};
    f.store.complete(done);
  }
  CHECK(turns ==
        std::vector{io_job::kind::read, io_job::kind::write, io_job::kind::read, io_job::kind::write});
  CHECK(f.store.take_ready().size() == 1);
  f.check();
}

TEST_CASE("many pins of the same blocks share one read each") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2, 3});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  for (std::uint64_t o = 1; o <= 5; ++o) REQUIRE(f.store.pin(keys_of(a), owner_id{o}, later)->ticket);
  CHECK(f.store.ssd_stats().jobs_queued == 3);
  f.store.release_all(owner_id{3});  // this one gives up waiting
  f.drain();
  const auto ready = f.store.take_ready();
  CHECK(ready.size() == 4);
  for (const auto& r : ready) {
    CHECK(r.owner != owner_id{3});
    check_content(r.pinned.blocks);
    f.store.release_all(r.owner);
  }
  CHECK(f.store.ssd_stats().promotions_shared == 12);
  CHECK(f.store.integrity().pinned == 0);
  f.check();
}

TEST_CASE("a read that outlives its owner leaves nothing behind") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  REQUIRE(f.store.pin(keys_of(a), bob, later)->ticket);
  const auto jobs = f.store.take_io_jobs();
  REQUIRE(jobs.size() == 2);
  CHECK(f.store.expire(later + 1s) == std::vector{bob});
  std::vector<io_result> done;
  for (const auto& j : jobs) done.push_back(f.disk.run(j));
  f.store.complete(done);
  f.drain();
  CHECK(f.store.take_ready().empty());
  CHECK(f.store.integrity().owners == 0);
  CHECK(f.store.integrity().pinned == 0);
  CHECK(f.store.match(keys_of(a)).dram == 2);
  f.check();
}

TEST_CASE(
    "what nobody waits for any more is not read: the rest of a run whose owner has ended, but for what "
    "others want") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2, 3, 4});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  REQUIRE(f.store.match(keys_of(a)).ssd == 4);
  REQUIRE(f.store.pin(keys_of(a), bob, later)->ticket);
  const auto keys = keys_of(a);
  REQUIRE(f.store.pin(std::span{keys}.first(2), owner_id{13}, later)->ticket);
  const auto begun = f.store.take_io_jobs(1);
  REQUIRE(begun.size() == 1);
  f.store.release_all(bob);
  f.check();
  CHECK(f.store.ssd_stats().reads_pending == 2);  // what has begun, and what the other one wants
  f.store.complete(std::vector{f.disk.run(begun.front())});
  f.drain();
  const auto ready = f.store.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].owner == owner_id{13});
  REQUIRE(ready[0].pinned.blocks.size() == 2);
  check_content(ready[0].pinned.blocks);
  // Nothing was lost: the rest is on SSD as before.
  CHECK(f.store.match(keys_of(a)).dram == 2);
  CHECK(f.store.match(keys_of(a)).ssd == 2);
  CHECK(f.store.ssd_stats().promotion_failures == 0);
  f.store.release_all(owner_id{13});
  CHECK(f.store.integrity().pinned + f.store.integrity().reserved + f.store.integrity().owners == 0);
  // The same by time.
  f.push_out(3);
  REQUIRE(f.store.pin(keys_of(a), bob, later)->ticket);
  CHECK(f.store.expire(later + 1s) == std::vector{bob});
  CHECK(f.store.ssd_stats().reads_pending == 0);
  f.drain();
  CHECK(f.store.take_ready().empty());
  f.check();
}

TEST_CASE("a bad block on SSD shortens the run to what came before it, and is a miss from then on") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2, 3, 4});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  f.disk.blocks.erase(a[2].key);
  REQUIRE(f.store.pin(keys_of(a), bob, later)->ticket);
  f.drain();
  const auto ready = f.store.take_ready();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].pinned.blocks.size() == 2);
  CHECK(f.store.match(keys_of(a)).total() == 2);
  CHECK(f.store.ssd_stats().promotion_failures == 1);
  f.store.release_all(bob);
  // Computed again, the block closes the hole.
  f.write(alice, {a[2]});
  f.drain();
  CHECK(f.store.match(keys_of(a)).total() == 4);
  f.check();
}

TEST_CASE("whoever finds reading too dear gets the DRAM part at once") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2, 3});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  const auto none = f.store.pin(keys_of(a), bob, later, 0);
  CHECK_FALSE(none->ticket);
  CHECK(none->pinned.blocks.empty());
  const auto one = f.store.pin(keys_of(a), bob, later, 1);
  CHECK(one->ticket);
  f.drain();
  CHECK(f.store.take_ready()[0].pinned.blocks.size() == 1);
  f.check();
}

TEST_CASE("a failed write leaves the block in DRAM only, and its successors too") {
  tiered_fixture f(16, options_for(write_policy::write_through));
  f.disk.writes_fail = true;
  f.write(alice, prompt({1, 2, 3}));
  f.drain();
  CHECK(f.store.ssd_stats().ssd_blocks == 0);
  CHECK(f.store.ssd_stats().write_failures == 3);
  CHECK(f.store.match(keys_of(prompt({1, 2, 3}))).dram == 3);
  f.disk.writes_fail = false;
  f.store.retry_writes();
  while (f.store.flush() != 0) f.drain();
  CHECK(f.store.ssd_stats().ssd_blocks == 3);
  f.check();
}

TEST_CASE("a disk that refuses writes is left alone for ever longer, and the store serves from memory") {
  for (const auto policy : {write_policy::write_back, write_policy::write_through}) {
    CAPTURE(static_cast<int>(policy));
    tiered_fixture f(16, options_for(policy));
    f.disk.writes_fail = true;
    auto now = time_point{} + 1s;
    (void)f.store.expire(now);
    // As long as no time passes, one refusal is enough.
    for (int i = 0; i < 200; ++i) {
      f.write(owner_id{500}, prompt({i}));
      f.store.release_all(owner_id{500});
      f.drain();
      f.check();
    }
    REQUIRE(f.store.why_writes_are_refused().has_value());
    CHECK(f.store.why_writes_are_refused()->detail == "told to fail");
    CHECK(f.disk.writes <= 4);  // what was queued when the first was refused
    CHECK(f.store.integrity().pinned == 0);
    // Ten minutes of the shard's ticks: tried after 1, 2, 4, ... 60 s.
    const auto before = f.disk.writes;
    for (int tick = 0; tick < 600; ++tick) {
      (void)f.store.expire(now += 1s);
      f.drain();
    }
    CHECK(f.disk.writes > before);
    CHECK(f.disk.writes - before <= 4 * 16);
    f.check();
    // Healed: written again within a minute, without anybody's asking.
    f.disk.writes_fail = false;
    for (int tick = 0; tick < 61; ++tick) {
      (void)f.store.expire(now += 1s);
      f.drain();
    }
    CHECK_FALSE(f.store.why_writes_are_refused().has_value());
    CHECK(f.store.ssd_stats().ssd_blocks > 0);
    f.check();
  }
}

TEST_CASE(
    "a flush before a planned stop ends when the disk refuses, and tries once although it has refused") {
  tiered_fixture f(16, options_for(write_policy::write_back));
  (void)f.store.expire(time_point{} + 1s);
  f.write(alice, prompt({1, 2, 3}));
  f.store.release_all(alice);
  f.disk.writes_fail = true;
  int rounds = 0;
  for (; f.store.flush() > 0 && rounds < 100; ++rounds) f.drain();
  CHECK(rounds == 1);
  CHECK(f.store.ssd_stats().ssd_blocks == 0);
  f.disk.writes_fail = false;
  CHECK(f.store.flush() == 0);  // left alone for now
  f.store.retry_writes();
  while (f.store.flush() > 0) f.drain();
  CHECK(f.store.ssd_stats().ssd_blocks == 3);
  f.check();
}

TEST_CASE("the SSD never holds more than its capacity and gives up leaves first") {
  tiered_fixture f(16, options_for(write_policy::write_through, 5));
  for (int i = 0; i < 6; ++i) {
    f.write(alice, prompt({7, i, i}));
    f.store.release_all(alice);
    f.drain();
    CHECK(f.disk.blocks.size() <= 5);
    CHECK(f.store.ssd_stats().ssd_blocks <= 5);
    f.check();
  }
  CHECK(f.disk.blocks.contains(prompt({7})[0].key));
  CHECK(f.store.ssd_stats().ssd_evictions > 0);
}

TEST_CASE("a block on SSD stays while what follows it is in DRAM only") {
  tiered_fixture f(16, options_for(write_policy::write_through_selective, 2));
  const auto a = prompt({1, 2});
  f.write(alice, {a[0]});
  REQUIRE(f.store.pin(std::vector{a[0].key}, alice, later));  // second use: written
  f.drain();
  f.store.release_all(alice);
  f.push_out(1);
  REQUIRE(f.store.match(keys_of(a)).ssd == 1);
  f.write(alice, a, 1);  // child in DRAM, parent on SSD only
  // Two other prompts want the room.
  for (int i = 5; i < 7; ++i) {
    f.write(alice, prompt({i}));
    REQUIRE(f.store.pin(keys_of(prompt({i})), alice, later));
    f.drain();
  }
  CHECK(f.disk.blocks.contains(a[0].key));
  CHECK(f.store.match(keys_of(a)).total() == 2);
  f.check();
}

TEST_CASE("after a restart, blocks whose prefix is gone are erased, the others announced") {
  tiered_fixture f(16, options_for(write_policy::write_back, 4));
  const auto a = prompt({1, 2, 3}), b = prompt({5, 6, 7});
  std::vector<ssd_block> found;
  for (const auto* names : {&a, &b})
    for (const auto& n : *names)
      if (n.key != b[0].key) found.push_back({n, 1});
  std::ranges::reverse(found);
  f.store.recover(found);
  CHECK(f.store.match(keys_of(a)).ssd == 3);
  CHECK(f.store.match(keys_of(b)).total() == 0);
  const auto jobs = f.store.take_io_jobs();
  CHECK(jobs.size() == 2);
  for (const auto& j : jobs) CHECK(j.what == io_job::kind::erase);
  CHECK(f.store.snapshot().blocks.size() == 3);
  CHECK(f.store.drain_events().size() == 3);
}

TEST_CASE("a smaller SSD than before keeps the beginnings of prompts") {
  tiered_fixture f(16, options_for(write_policy::write_back, 3));
  std::vector<ssd_block> found;
  for (int p = 0; p < 3; ++p)
    for (const auto& n : prompt({p, p})) found.push_back({n, 1});
  f.store.recover(found);
  CHECK(f.store.ssd_stats().ssd_blocks == 3);
  for (int p = 0; p < 3; ++p) CHECK(f.store.match(keys_of(prompt({p, p}))).ssd == 1);
  f.check();
}

TEST_CASE("over the real tier, a restarted node serves what it held, byte for byte") {
  test::temp_dir dir;
  rocksdb_tier_options tier_options;
  tier_options.path = dir / "ssd";
  tier_options.block_bytes = tiered_block_bytes;
  tier_options.fingerprint = {1, 1};
  tier_options.capacity_blocks = 100;
  tier_options.flush_bytes = 64 * KiB;
  const auto a = prompt({1, 2, 3, 4, 5, 6});
  const auto run = [](tiered_store& store, rocksdb_tier& tier) {
    for (auto jobs = store.take_io_jobs(); !jobs.empty(); jobs = store.take_io_jobs())
      store.complete(execute(jobs, tier, tiered_block_bytes));
  };
  {
    tiered_fixture f(8, options_for(write_policy::write_back, 100));
    auto tier = rocksdb_tier::open(tier_options).value();
    f.write(alice, a);
    f.store.release_all(alice);
    while (f.store.flush() != 0) run(f.store, *tier);
    CHECK(f.store.ssd_stats().ssd_blocks == a.size());
  }
  tiered_fixture f(8, options_for(write_policy::write_back, 100));
  std::vector<ssd_block> found;
  auto tier = rocksdb_tier::open(tier_options, [&](const ssd_block& b) { found.push_back(b); }).value();
  f.store.recover(found);
  auto want = keys_of(a);
  want.resize(4);  // reads are bounded to half of the slots
  REQUIRE(f.store.pin(want, bob, later)->ticket);
  run(f.store, *tier);
  const auto ready = f.store.take_ready();
  REQUIRE(ready.size() == 1);
  REQUIRE(ready[0].pinned.blocks.size() == 4);
  check_content(ready[0].pinned.blocks);
  f.check();
}
