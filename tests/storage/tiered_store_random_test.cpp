// The tiered store under random operations, with late, lost and failing I/O.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/storage/tiered_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

TEST_CASE("random operations on both tiers keep every promise, with late, lost and failing I/O") {
  std::size_t ever_withheld = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    auto options = options_for(static_cast<write_policy>(seed % 3), 20 + seed);
    options.dram.eviction.policy = static_cast<eviction_policy>(seed / 3 % 3);
    options.max_writes = 1 + seed % 5;
    options.max_reads = 1 + seed % 7;
    const bool disk_rots = seed % 4 == 0;
    tiered_fixture f(24, options);
    time_point now{};
    std::uint64_t next_owner = 1;
    std::vector<owner_id> owners{owner_id{next_owner++}};
    std::map<ticket_id, owner_id> waiting;
    std::map<owner_id, std::vector<pinned_block>> pinned;
    std::vector<io_job> running;
    std::map<block_key, storage_tier> announced;
    std::size_t most_withheld = 0;
    std::uint64_t room =
        options.ssd_capacity_blocks;  // that the disk has, or is still taking from those who read
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
      switch (below(12)) {
        case 11: {  // the disk's blocks pack better, or worse
          const auto fitting =
              options.ssd_capacity_blocks / 2 + below(static_cast<unsigned>(options.ssd_capacity_blocks));
          f.store.fit_ssd(fitting);
          room = std::max<std::uint64_t>(fitting, f.store.ssd_stats().ssd_blocks);
          break;
        }
        case 10: {  // something else takes memory, writes into it, and gives it back
          const auto wanted = static_cast<std::size_t>(below(16));
          for (const auto slot : f.store.withhold(wanted, static_cast<std::size_t>(below(8)))) {
            const auto bytes = std::span{f.store.slot(slot).address, tiered_block_bytes};
            std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
          }
          REQUIRE(f.store.integrity().withheld <= std::max<std::size_t>(wanted, most_withheld));
          most_withheld = f.store.integrity().withheld;
          ever_withheld = std::max(ever_withheld, most_withheld);
          break;
        }
        case 0:
        case 1: {
          const auto from = f.store.match(keys_of(names)).total();
          const auto slots = f.store.reserve(o, names.size() - from, now + 2s);
          if (!slots) break;
          for (std::size_t i = from; i < names.size(); ++i) {
            const auto& s = (*slots)[i - from];
            test::fill({s.address, tiered_block_bytes}, names[i].key);
            REQUIRE(f.store.commit(o, s.index, names[i], checksum64({s.address, tiered_block_bytes})));
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
        case 8: {
          const auto held = f.store.match(keys_of(names));
          const auto slots = f.store.reserve(o, held.ssd + 1, now + 2s);
          if (!slots || held.ssd == 0) break;
          std::vector<std::uint32_t> into;
          for (std::uint32_t i = 0; i < held.ssd; ++i) into.push_back((*slots)[i].index);
          const auto keys = keys_of(names);
          const auto ticket = f.store.load(std::span{keys}.subspan(held.dram, held.ssd), into, o, now + 2s);
          if (ticket) waiting[*ticket] = o;
          break;
        }
        case 9: {
          // Others have this or that; the answer may be late, so that it is about blocks that are gone.
          auto asked = f.store.ask_for_copies();
          if (asked.empty()) asked = {names.back().key, names.front().key};
          std::vector<block_key> kept;
          for (std::size_t i = 0; i < asked.size(); i += 2)
            if (below(2) == 0) kept.push_back(asked[i]);
          f.store.copies_are(asked, kept);
          break;
        }
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
        if (e.what == block_change::removed) {
          REQUIRE(announced.erase(e.name.key) == 1);
        } else {
          REQUIRE(announced.contains(e.name.key) == (e.what == block_change::moved));
          announced[e.name.key] = e.tier;
        }
      }
      std::string why;
      if (!f.store.consistent(&why)) FAIL("step " << step << ": " << why);
      REQUIRE(f.store.integrity().add_up());
      REQUIRE(f.store.ssd_stats().ssd_blocks <= room);
      for (const auto& [owner, blocks] : pinned)
        for (const auto& b : blocks) {
          REQUIRE(f.store.dram().find(b.key)->slot == b.slot.index);
          REQUIRE(checksum64({b.slot.address, tiered_block_bytes}) == b.checksum);
        }
      std::size_t held = 0;
      f.store.dram().for_each([&](const auto& e) {
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
    CHECK(f.store.withhold(0).empty());
    f.check();
    CHECK(f.store.integrity().owners == 0);
    CHECK(f.store.integrity().pinned == 0);
    CHECK(f.store.integrity().free + f.store.integrity().committed == 24);
    CHECK(f.store.ssd_stats().jobs_queued + f.store.ssd_stats().jobs_running == 0);
    if (!disk_rots) CHECK(f.disk.blocks.size() == f.store.ssd_stats().ssd_blocks);
  }
  CHECK(ever_withheld > 10);
}
