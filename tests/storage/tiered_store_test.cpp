#include "storage/tiered_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/storage/block_maker.hpp"
#include "tests/storage/temp_dir.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;
using test::keys_of;
using test::prompt;

namespace {

constexpr std::size_t block_bytes = 256;
constexpr time_point later = time_point{} + 10s;
const owner_id alice{11}, bob{12};

/// A disk that does what jobs say, at once, and fails when told to.
struct fake_disk {
  std::map<block_key, std::vector<std::byte>> blocks;
  bool writes_fail = false;
  std::size_t writes = 0;

  io_result run(const io_job& job) {
    const std::span<std::byte> slot{job.slot.address, block_bytes};
    const auto& key = job.block.name.key;
    switch (job.what) {
      case io_job::kind::write:
        ++writes;
        if (writes_fail) return {job.id, {ec::io_error, "told to fail"}};
        blocks[key].assign(slot.begin(), slot.end());
        return {job.id, {}};
      case io_job::kind::read: {
        const auto it = blocks.find(key);
        if (it == blocks.end()) return {job.id, {ec::not_found, "gone"}};
        std::copy(it->second.begin(), it->second.end(), slot.begin());
        return {job.id, {}};
      }
      case io_job::kind::erase:
        blocks.erase(key);
        return {job.id, {}};
    }
    return {job.id, {ec::internal, "no such job"}};
  }
};

tiered_store_options options_for(write_policy write, std::uint64_t ssd_capacity = 1000) {
  tiered_store_options o;
  o.ssd = true;
  o.write = write;
  o.ssd_capacity_blocks = ssd_capacity;
  return o;
}

struct fixture {
  fixture(std::size_t slots, const tiered_store_options& options)
      : memory(test::pool::make(slots, block_bytes)), store(memory.slots, options) {}

  void write(owner_id owner, const std::vector<block_name>& names, std::size_t from = 0) {
    const auto slots = store.reserve(owner, names.size() - from, later);
    REQUIRE_MESSAGE(slots, to_string(slots.error()));
    for (std::size_t i = from; i < names.size(); ++i) {
      const auto& slot = (*slots)[i - from];
      test::fill({slot.address, block_bytes}, names[i].key);
      REQUIRE(store.commit(owner, slot.index, names[i], checksum64({slot.address, block_bytes})));
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

  test::pool memory;
  tiered_store store;
  fake_disk disk;
};

void check_content(const std::vector<pinned_block>& blocks) {
  for (const auto& b : blocks) {
    const std::span<std::byte> bytes{b.slot.address, block_bytes};
    CHECK(checksum64(bytes) == b.checksum);
    CHECK(std::ranges::equal(bytes, test::bytes_of(b.key, block_bytes)));
  }
}

}  // namespace

TEST_CASE("write policy names are read as they are written") {
  for (auto p :
       {write_policy::write_back, write_policy::write_through, write_policy::write_through_selective})
    CHECK(parse_write_policy(to_string(p)) == p);
  CHECK_FALSE(parse_write_policy("never"));
}

TEST_CASE("without an SSD no job is ever made") {
  fixture f(4, {});
  f.write(alice, prompt({1, 2, 3}));
  f.store.release_all(alice);
  f.write(alice, prompt({4, 5, 6}));
  CHECK(f.store.take_io_jobs().empty());
  CHECK(f.store.flush() == 0);
  CHECK(f.store.match(keys_of(prompt({1, 2, 3}))).total() <= 1);
  f.check();
}

TEST_CASE("write-through puts a block on SSD when it is committed, its prefix first") {
  fixture f(8, options_for(write_policy::write_through));
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

TEST_CASE("write-back writes a block when it leaves DRAM, and it is found on SSD from then on") {
  fixture f(16, options_for(write_policy::write_back));
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
    if (e.what == block_event::kind::moved && e.tier == storage_tier::ssd) moved.push_back(e.name.key);
    CHECK_FALSE((e.what == block_event::kind::removed && e.name.key == a[0].key));
  }
  for (const auto& n : a) CHECK(std::ranges::count(moved, n.key) == 1);
  f.check();
}

TEST_CASE("write-through-selective writes what is used often and drops the rest") {
  auto options = options_for(write_policy::write_through_selective);
  options.selective_hits = 3;
  fixture f(16, options);
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

TEST_CASE("a pin that needs the SSD gets a ticket, and the blocks when they have been read") {
  fixture f(16, options_for(write_policy::write_through));
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
  fixture f(32, options_for(write_policy::write_through));
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
  fixture f(16, options_for(write_policy::write_through));
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
  fixture f(16, options_for(write_policy::write_through));
  const auto a = prompt({1, 2});
  f.write(alice, a);
  f.store.release_all(alice);
  f.drain();
  f.push_out(1);
  REQUIRE(f.store.pin(keys_of(a), bob, later)->ticket);
  CHECK(f.store.expire(later + 1s) == std::vector{bob});
  f.drain();
  CHECK(f.store.take_ready().empty());
  CHECK(f.store.integrity().owners == 0);
  CHECK(f.store.integrity().pinned == 0);
  CHECK(f.store.match(keys_of(a)).dram == 2);
  f.check();
}

TEST_CASE("a bad block on SSD shortens the run to what came before it, and is a miss from then on") {
  fixture f(16, options_for(write_policy::write_through));
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
  fixture f(16, options_for(write_policy::write_through));
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
  fixture f(16, options_for(write_policy::write_through));
  f.disk.writes_fail = true;
  f.write(alice, prompt({1, 2, 3}));
  f.drain();
  CHECK(f.store.ssd_stats().ssd_blocks == 0);
  CHECK(f.store.ssd_stats().write_failures == 3);
  CHECK(f.store.match(keys_of(prompt({1, 2, 3}))).dram == 3);
  f.disk.writes_fail = false;
  while (f.store.flush() != 0) f.drain();
  CHECK(f.store.ssd_stats().ssd_blocks == 3);
  f.check();
}

TEST_CASE("the SSD never holds more than its capacity and gives up leaves first") {
  fixture f(16, options_for(write_policy::write_through, 5));
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
  fixture f(16, options_for(write_policy::write_through_selective, 2));
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
  fixture f(16, options_for(write_policy::write_back, 4));
  const auto a = prompt({1, 2, 3}), b = prompt({5, 6, 7});
  std::vector<stored_block> found;
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
  fixture f(16, options_for(write_policy::write_back, 3));
  std::vector<stored_block> found;
  for (int p = 0; p < 3; ++p)
    for (const auto& n : prompt({p, p})) found.push_back({n, 1});
  f.store.recover(found);
  CHECK(f.store.ssd_stats().ssd_blocks == 3);
  for (int p = 0; p < 3; ++p) CHECK(f.store.match(keys_of(prompt({p, p}))).ssd == 1);
  f.check();
}

TEST_CASE("random operations on both tiers keep every promise, with late, lost and failing I/O") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    auto options = options_for(static_cast<write_policy>(seed % 3), 20 + seed);
    options.dram.eviction.policy = static_cast<eviction_policy>(seed / 3 % 3);
    options.max_writes = 1 + seed % 5;
    options.max_reads = 1 + seed % 7;
    const bool disk_rots = seed % 4 == 0;
    fixture f(24, options);
    time_point now{};
    std::uint64_t next_owner = 1;
    std::vector<owner_id> owners{owner_id{next_owner++}};
    std::map<ticket_id, owner_id> waiting;
    std::map<owner_id, std::vector<pinned_block>> pinned;
    std::vector<io_job> running;
    std::map<block_key, storage_tier> announced;
    for (int step = 0; step < 3000; ++step) {
      now += std::chrono::milliseconds(below(50));
      if (below(10) == 0) owners.push_back(owner_id{next_owner++});
      const auto at = static_cast<std::size_t>(below(static_cast<unsigned>(owners.size())));
      const owner_id o = owners[at];
      const auto names = prompt({below(3), below(2), below(3), below(2)});
      const auto forget = [&](owner_id dead) {
        pinned.erase(dead);
        std::erase_if(waiting, [&](const auto& w) { return w.second == dead; });
        std::erase(owners, dead);
        if (owners.empty()) owners.push_back(owner_id{next_owner++});
      };
      switch (below(8)) {
        case 0:
        case 1: {
          const auto from = f.store.match(keys_of(names)).total();
          const auto slots = f.store.reserve(o, names.size() - from, now + 2s);
          if (!slots) break;
          for (std::size_t i = from; i < names.size(); ++i) {
            const auto& s = (*slots)[i - from];
            test::fill({s.address, block_bytes}, names[i].key);
            REQUIRE(f.store.commit(o, s.index, names[i], checksum64({s.address, block_bytes})));
          }
          break;
        }
        case 2:
        case 3: {
          auto reply = f.store.pin(keys_of(names), o, now + 2s, below(3) ? 100 : 1);
          if (!reply) break;
          auto& mine = pinned[o];
          mine.insert(mine.end(), reply->pinned.blocks.begin(), reply->pinned.blocks.end());
          if (reply->ticket) waiting[reply->ticket] = o;
          break;
        }
        case 4:
          f.store.release_all(o);
          forget(o);
          break;
        case 5:
          for (const auto dead : f.store.expire(now)) forget(dead);
          break;
        case 6:
          for (const auto& job : f.store.take_io_jobs(static_cast<std::size_t>(below(4))))
            running.push_back(job);
          break;
        case 7: {
          const auto count = std::min<std::size_t>(running.size(), static_cast<std::size_t>(below(5)));
          std::vector<io_result> done;
          f.disk.writes_fail = below(10) == 0;
          for (std::size_t i = 0; i < count; ++i) done.push_back(f.disk.run(running[i]));
          running.erase(running.begin(), running.begin() + static_cast<std::ptrdiff_t>(count));
          f.store.complete(done);
          if (disk_rots && below(20) == 0 && !f.disk.blocks.empty())
            f.disk.blocks.erase(f.disk.blocks.begin());
          break;
        }
      }
      for (const auto& ready : f.store.take_ready()) {
        REQUIRE(waiting.contains(ready.ticket));
        REQUIRE(waiting[ready.ticket] == ready.owner);
        waiting.erase(ready.ticket);
        auto& mine = pinned[ready.owner];
        mine.insert(mine.end(), ready.pinned.blocks.begin(), ready.pinned.blocks.end());
      }
      for (const auto& e : f.store.drain_events()) {
        if (e.what == block_event::kind::removed) {
          REQUIRE(announced.erase(e.name.key) == 1);
        } else {
          REQUIRE(announced.contains(e.name.key) == (e.what == block_event::kind::moved));
          announced[e.name.key] = e.tier;
        }
      }
      std::string why;
      if (!f.store.consistent(&why)) FAIL("step " << step << ": " << why);
      REQUIRE(f.store.integrity().add_up());
      REQUIRE(f.store.ssd_stats().ssd_blocks <= options.ssd_capacity_blocks);
      for (const auto& [owner, blocks] : pinned)
        for (const auto& b : blocks) {
          REQUIRE(f.store.dram().find(b.key)->slot == b.slot.index);
          REQUIRE(checksum64({b.slot.address, block_bytes}) == b.checksum);
        }
      std::size_t held = 0;
      f.store.dram().directory().for_each([&](const auto& e) {
        ++held;
        const auto it = announced.find(e.name.key);
        REQUIRE(it != announced.end());
        REQUIRE((it->second == storage_tier::dram) == e.in_dram());
      });
      REQUIRE(held == announced.size());
    }
    for (const auto o : std::vector(owners)) f.store.release_all(o);
    f.disk.writes_fail = false;
    std::vector<io_result> done;
    for (const auto& job : running) done.push_back(f.disk.run(job));
    f.store.complete(done);
    f.drain();
    f.check();
    CHECK(f.store.integrity().owners == 0);
    CHECK(f.store.integrity().pinned == 0);
    CHECK(f.store.integrity().free + f.store.integrity().committed == 24);
    CHECK(f.store.ssd_stats().jobs_queued + f.store.ssd_stats().jobs_running == 0);
    if (!disk_rots) CHECK(f.disk.blocks.size() == f.store.ssd_stats().ssd_blocks);
  }
}

TEST_CASE("over the real tier, a restarted node serves what it held, byte for byte") {
  test::temp_dir dir;
  rocksdb_tier_options tier_options;
  tier_options.path = dir / "ssd";
  tier_options.block_bytes = block_bytes;
  tier_options.fingerprint = {1, 1};
  tier_options.capacity_blocks = 100;
  tier_options.flush_bytes = 64 * KiB;
  const auto a = prompt({1, 2, 3, 4, 5, 6});
  const auto run = [](tiered_store& store, rocksdb_tier& tier) {
    for (auto jobs = store.take_io_jobs(); !jobs.empty(); jobs = store.take_io_jobs())
      store.complete(execute(jobs, tier, block_bytes));
  };
  {
    fixture f(8, options_for(write_policy::write_back, 100));
    auto tier = rocksdb_tier::open(tier_options).value();
    f.write(alice, a);
    f.store.release_all(alice);
    while (f.store.flush() != 0) run(f.store, *tier);
    CHECK(f.store.ssd_stats().ssd_blocks == a.size());
  }
  fixture f(8, options_for(write_policy::write_back, 100));
  std::vector<stored_block> found;
  auto tier = rocksdb_tier::open(tier_options, [&](const stored_block& b) { found.push_back(b); }).value();
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
