// Memory and SSD, with tenants: the table against one memory, one disk and a model of what must be there.

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <utility>

#include "storage/objects/table/object_table.hpp"
#include "storage/objects/terms/key_scope.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t grain = 4 * KiB;

/// A holder of memory and an SSD, whose bytes are the number of the value that they belong to.
struct holder : object_journal {
  struct job {
    bool loads = false;
    std::uint64_t ticket = 0;
    std::vector<replica_place> places;
  };
  std::map<std::uint64_t, std::uint64_t> memory, disk;  // value by offset, by ticket
  std::vector<job> jobs;

  void reserved(std::uint32_t, const segment_record&) override {}
  void published(std::uint32_t, const segment_record&, std::string_view, std::string_view) override {}
  void freed(std::uint32_t, std::uint64_t, std::uint64_t, duration) override {}
  void erased(std::uint32_t, std::uint64_t ticket, std::string_view) override {
    disk.erase(ticket);
    std::erase_if(jobs, [&](const job& j) { return !j.loads && j.ticket == ticket; });
  }
  void changed(std::string_view) override {}
  void save(std::uint32_t, const segment_record& r, std::string_view, std::string_view,
            std::span<const replica_place> from) override {
    jobs.push_back({false, r.ticket, {from.begin(), from.end()}});
  }
  void load(std::uint32_t, std::uint64_t ticket, std::span<const replica_place> to) override {
    jobs.push_back({true, ticket, {to.begin(), to.end()}});
  }
};

constexpr auto any = ~std::uint64_t{0};

object_table_options two_tenants(const tenant_limit& limit) {
  object_table_options o;
  o.lease = std::chrono::seconds(10);
  o.lease = 1s;
  o.quarantine = 2s;
  o.tenants = {{"a", limit}, {"b", limit}};
  return o;
}

struct tiers {
  tiers(std::uint64_t quota, std::uint64_t objects, std::uint64_t memory_bytes, std::uint64_t disk_bytes,
        disk_policy policy = {}, std::uint64_t disk_quota = any)
      : table(two_tenants({quota, objects, disk_quota}), &ends) {
    memory = table.mount("m", "h", memory_bytes);
    disk = table.mount_disk("m/ssd", "h", disk_bytes, memory, policy);
    table.disk_open(disk);
  }

  /// @returns whether it did anything. @param good  what the disk says to it.
  bool work(bool good = true) {
    if (ends.jobs.empty()) return false;
    const auto j = ends.jobs.front();
    ends.jobs.erase(ends.jobs.begin());
    if (j.loads) good = good && ends.disk.count(j.ticket) != 0;
    for (const auto& p : j.places) {
      if (good && j.loads) ends.memory[p.offset] = ends.disk.at(j.ticket);
      if (good && !j.loads) ends.disk[j.ticket] = ends.memory[p.offset];
      REQUIRE(ends.memory[p.offset] == ends.memory[j.places.front().offset]);
    }
    in_pieces += j.places.size() > 1;
    if (!good && j.loads) ends.disk.erase(j.ticket);
    table.disk_done(disk, j.ticket, good, now);
    return true;
  }

  store_code put(const std::string& key, std::uint64_t size, std::uint64_t value, put_policy policy = {}) {
    const auto made = table.reserve(1, key, size, policy, "h", now);
    if (made.code != store_code::ok) return made.code;
    for (const auto& p : made.places) ends.memory[p.offset] = value;
    return table.publish(1, made.ticket, value, now);
  }
  /// As a client does it: asks again while what makes way is being saved.
  store_code put_patiently(const std::string& key, std::uint64_t size, std::uint64_t value) {
    for (;;) {
      const auto code = put(key, size, value);
      if (code != store_code::busy || !work()) return code;
    }
  }
  /// The value, or nothing.
  std::optional<std::uint64_t> get(const std::string& key) {
    auto seen = table.find(key, now);
    while (seen.code == store_code::ok && seen.places.empty()) {
      const auto code = table.load(key, now);
      if (code == store_code::busy && work()) continue;
      if (code != store_code::ok) return std::nullopt;
      table.hold(key, now);
      seen = table.look(key, now);
    }
    if (seen.code != store_code::ok) return std::nullopt;
    for (const auto& p : seen.places) REQUIRE(ends.memory[p.offset] == seen.checksum);
    return seen.checksum;
  }

  holder ends;
  object_table table;
  std::uint32_t memory = 0, disk = 0;
  std::uint64_t in_pieces = 0;  ///< saved and loaded
  time_point now{1h};
};

std::string named(std::string_view tenant, std::string_view key) { return all_of(tenant) + std::string{key}; }

}  // namespace

TEST_CASE(
    "what a tenant has no room for any more lies on SSD, is read back within the quota, and counts nothing") {
  tiers t{8 * grain, 5, 1 * MiB, 16 * MiB};
  const auto a = t.table.owner("a");
  for (std::uint64_t i = 0; i < 40; ++i)
    REQUIRE(t.put_patiently(named("a", "k" + std::to_string(i)), grain, 100 + i) == store_code::ok);
  CHECK(t.table.tenant(a).counts.objects == 40);
  CHECK(t.table.tenant(a).counts.evictions == 0);
  CHECK(t.table.tenant(a).counts.demoted >= 35);
  for (std::uint64_t i = 0; i < 40; ++i) {
    CHECK(t.get(named("a", "k" + std::to_string(i))) == 100 + i);
    const auto c = t.table.tenant(a).counts;
    CHECK(c.total_bytes - c.free_bytes <= 8 * grain);
    REQUIRE(t.table.consistent());
  }
  CHECK(t.table.tenant(a).counts.loaded >= 35);
  CHECK(t.table.tenant(t.table.owner("b")).counts.loaded == 0);
  // One who says that it may be lost gets room at once, and what made way is gone.
  t.now += 2s;
  put_policy at_once;
  at_once.lossy = true;
  for (std::uint64_t i = 0; i < 5; ++i)
    CHECK(t.put(named("a", "now" + std::to_string(i)), grain, i, at_once) == store_code::ok);
  CHECK(t.table.consistent());
}

TEST_CASE("who has filled a quota with what the disk is still writing waits for that, and is not refused") {
  tiers t{2 * grain, 1000, 1 * MiB, 4 * MiB, {write_policy::write_through, 2, 2}};
  CHECK(t.put(named("a", "k0"), grain, 0) == store_code::ok);
  CHECK(t.put(named("a", "k1"), grain, 1) == store_code::ok);
  REQUIRE(t.ends.jobs.size() == 2);
  CHECK(t.put(named("a", "k2"), grain, 2) == store_code::busy);
  // Nothing would ever make room for this one.
  CHECK(t.put(named("a", "large"), 3 * grain, 3) == store_code::quota_exceeded);
  CHECK(t.put_patiently(named("a", "k2"), grain, 2) == store_code::ok);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(t.get(named("a", "k" + std::to_string(i))) == i);
  CHECK(t.table.tenant(t.table.owner("a")).counts.evictions == 0);
}

TEST_CASE(
    "a tenant has its share of the SSD: its own objects make way there, and what is too large stays in "
    "memory") {
  tiers t{1 * MiB, 1000, 1 * MiB, 4 * MiB, {write_policy::write_through, 2, 2}, 10 * grain};
  const auto a = t.table.owner("a"), b = t.table.owner("b");
  const auto put = [&](std::string_view who, const std::string& key, std::uint64_t size) {
    REQUIRE(t.put_patiently(who.empty() ? key : named(who, key), size, 1) == store_code::ok);
    while (t.work()) {
    }
    REQUIRE(t.get(who.empty() ? key : named(who, key)) == 1);  // what was used longest ago leaves first
    t.now += 2s;
    t.table.tick(t.now);
    REQUIRE(t.table.consistent());
  };
  const auto on_disk = [&](std::string_view who, const std::string& key) {
    return !t.table.look(named(who, key), t.now).disks.empty();
  };
  for (int i = 0; i < 5; ++i) put("b", "k" + std::to_string(i), grain);
  for (int i = 0; i < 25; ++i) put("a", "k" + std::to_string(i), grain);
  for (int i = 0; i < 25; ++i) CHECK(on_disk("a", "k" + std::to_string(i)) == (i >= 15));
  CHECK(t.table.tenant(a).counts.disk_bytes == 10 * grain);
  CHECK(t.table.tenant(a).counts.disk_total_bytes == 10 * grain);
  CHECK(t.table.tenant(a).counts.disk_evictions == 15);
  CHECK(t.table.tenant(b).counts.disk_bytes == 5 * grain);
  CHECK(t.table.tenant(b).counts.disk_evictions == 0);
  put("a", "large", 11 * grain);
  CHECK_FALSE(on_disk("a", "large"));
  CHECK(t.get(named("a", "large")) == 1);
  CHECK(t.table.tenant(a).counts.disk_bytes == 10 * grain);
  put("a", "wide", 9 * grain);
  CHECK(on_disk("a", "wide"));
  CHECK(on_disk("a", "k24"));
  CHECK_FALSE(on_disk("a", "k23"));
  // Who has no quota has all of it.
  for (int i = 0; i < 100; ++i) put("", "n" + std::to_string(i), grain);
  CHECK(t.table.tenant(0).counts.disk_bytes == 100 * grain);
  CHECK(t.table.counts().disk_bytes == 115 * grain);
}

TEST_CASE(
    "a directory that begins with a smaller share gives up what lies on SSD beyond it, the oldest first") {
  tiers t{1 * MiB, 1000, 1 * MiB, 4 * MiB, {}, 4 * grain};
  const auto beside = t.table.mount("m2", "h2", 1 * MiB);
  const auto other = t.table.mount_disk("m2/ssd", "h2", 4 * MiB, beside, {});
  for (std::uint64_t i = 0; i < 12; ++i) {
    segment_record r;
    r.ticket = 10 + i;
    r.version = 10 + i;
    r.size = r.object_size = grain;
    r.published = true;
    r.checksum = i;
    r.depth = static_cast<std::uint32_t>(12 - i);  // the deeper leaves first
    r.key = named(i % 4 == 3 ? "b" : "a", "k" + std::to_string(i));
    REQUIRE(t.table.recover_on_disk(i % 2 ? other : t.disk, std::move(r), false, t.now));
  }
  t.table.disk_open(other);
  t.table.tick(t.now);
  CHECK(t.table.consistent());
  for (std::uint64_t i = 0; i < 12; ++i) {
    const bool there =
        t.table.look(named(i % 4 == 3 ? "b" : "a", "k" + std::to_string(i)), t.now).code == store_code::ok;
    CHECK(there == (i % 4 == 3 || i >= 6));
  }
}

TEST_CASE("what goes to SSD, and when, is what the policy says") {
  for (const auto policy :
       {write_policy::write_back, write_policy::write_through, write_policy::write_through_selective}) {
    CAPTURE(to_string(policy));
    tiers t{1 * GiB, 1000, 4 * MiB, 64 * MiB, {policy, 2, 2}};
    const auto written = [&] {
      while (t.work()) {
      }
      return t.table.counts().saved;
    };
    REQUIRE(t.put("k", grain, 7) == store_code::ok);
    CHECK(written() == (policy == write_policy::write_through));
    for (int uses = 1; uses <= 3; ++uses) {
      t.now += 2s;
      CHECK(t.get("k") == 7);
      const bool hot = policy == write_policy::write_through_selective && uses >= 2;
      CHECK(written() == (hot || policy == write_policy::write_through));
    }
    t.now += 2s;
    for (int i = 0; i < 2000; ++i)
      REQUIRE(t.put_patiently("other-" + std::to_string(i), grain, 8) == store_code::ok);
    while (t.work()) {
    }
    // What had to leave is on SSD, but for what a selective policy found too cold; that one is gone.
    CHECK(t.get("k") == 7);
    const auto c = t.table.counts();
    CHECK((c.evictions > 0) == (policy == write_policy::write_through_selective));
    CHECK(c.demoted > 0);
    CHECK(t.table.consistent());
  }
}

TEST_CASE("what is read from SSD stays in memory once it is used so often, and else leaves with its lease") {
  tiers t{1 * GiB, 1000, 1 * MiB, 64 * MiB, {write_policy::write_through, 2, 3}};
  REQUIRE(t.put("k", grain, 7) == store_code::ok);
  for (int i = 0; i < 400; ++i)
    REQUIRE(t.put_patiently("other-" + std::to_string(i), grain, 8) == store_code::ok);
  REQUIRE(t.table.look("k", t.now).places.empty());
  for (int uses = 1; uses <= 4; ++uses) {
    CAPTURE(uses);
    CHECK(t.get("k") == 7);
    t.now += 2s;  // the lease is over
    t.table.tick(t.now);
    CHECK(t.table.look("k", t.now).places.empty() == (uses < 3));
  }
  CHECK(t.table.counts().loaded == 3);
  CHECK(t.table.counts().promoted == 1);
}

TEST_CASE("what no run of memory is wide enough for goes to SSD in pieces, and comes back into pieces") {
  tiers t{1 * GiB, 1000, 4 * MiB, 64 * MiB, {write_policy::write_through, 2, 2}};
  // Every second of them stays: what is free is in runs of a stripe's length.
  const auto stripe = object_table::stripe_bytes_min;
  put_policy hard;
  hard.hard_pin = true;
  for (int i = 0; i < 60; ++i)
    REQUIRE(t.put("small-" + std::to_string(i), stripe, 1, i % 2 ? hard : put_policy{}) == store_code::ok);
  while (t.work()) {
  }
  for (int i = 0; i < 60; i += 2)
    REQUIRE(t.table.remove("small-" + std::to_string(i), true, t.now) == store_code::ok);
  const auto wide = 10 * stripe - 5;
  for (std::uint64_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    REQUIRE(t.put_patiently("wide-" + std::to_string(i), wide, 100 + i) == store_code::ok);
    while (t.work()) {
    }
    REQUIRE(t.table.consistent());
  }
  CHECK(t.in_pieces >= 12);
  const auto saved = std::exchange(t.in_pieces, 0);
  for (std::uint64_t i = 0; i < 12; ++i) {
    CHECK(t.get("wide-" + std::to_string(i)) == 100 + i);
    t.now += 2s;
    t.table.tick(t.now);
    REQUIRE(t.table.consistent());
  }
  CHECK(t.in_pieces >= 8);
  CHECK(saved >= 12);
  CHECK(t.table.counts().evictions == 0);
}

TEST_CASE(
    "a disk that refuses is left alone, longer each time; memory serves alone meanwhile, and then both") {
  tiers t{1 * GiB, 10'000, 1 * MiB, 64 * MiB, {write_policy::write_through, 2, 2}};
  std::uint64_t n = 0, asked = 0;
  const auto put = [&] {  // and what the disk says to it
    ++n;
    const auto key = "k" + std::to_string(n);
    auto code = t.put(key, grain, n);
    const bool was_asked = !t.ends.jobs.empty();
    while (t.work(false))
      if (code == store_code::busy) code = t.put(key, grain, n);
    REQUIRE(code == store_code::ok);
    asked += was_asked;
    return was_asked;
  };
  CHECK(put());
  for (int i = 0; i < 1000; ++i) put();  // four times what memory holds, within its first pause
  CHECK(asked == 1);
  CHECK(t.table.counts().save_failures == 1);
  CHECK(t.table.counts().evictions > 500);
  CHECK(t.get("k" + std::to_string(n)) == n);
  for (int pause = 1; pause <= 64; pause *= 2) {
    CAPTURE(pause);
    const auto length = std::chrono::seconds(std::min(pause, 60));
    t.now += length - 1ms;
    CHECK_FALSE(put());
    t.now += 1ms;
    CHECK(put());
  }
  t.now += 60s;
  REQUIRE(t.put_patiently("good", grain, 1) == store_code::ok);
  while (t.work()) {
  }
  CHECK(t.table.counts().saved > 0);
  REQUIRE(t.put_patiently("again", grain, 1) == store_code::ok);
  CHECK(!t.ends.jobs.empty());
  CHECK(t.table.consistent());
}

TEST_CASE("an SSD whose objects pack well holds more, and what packs worse later makes the oldest leave") {
  tiers t{1 * GiB, 10'000, 1 * MiB, 1 * MiB, {write_policy::write_through, 2, 2}};
  const auto put = [&](int i) {
    REQUIRE(t.put_patiently("k" + std::to_string(i), grain, 1 + static_cast<std::uint64_t>(i)) ==
            store_code::ok);
    while (t.work()) {
    }
  };
  const auto fit = static_cast<int>(MiB / grain);
  for (int i = 0; i < 2 * fit; ++i) put(i);
  CHECK(t.table.counts().disk_bytes == MiB);
  t.table.disk_fits(t.disk, MiB * 3 / 2, t.now);
  CHECK(t.table.counts().disk_total_bytes == MiB * 3 / 2);
  for (int i = 2 * fit; i < 4 * fit; ++i) put(i);
  CHECK(t.table.counts().disk_bytes == MiB * 3 / 2);
  t.now += 10s;  // no lease is left
  t.table.tick(t.now);
  t.table.disk_fits(t.disk, MiB, t.now);
  CHECK(t.table.counts().disk_bytes == MiB);
  CHECK(t.table.counts().disk_total_bytes == MiB);
  CHECK(t.table.consistent());
  CHECK(t.get("k" + std::to_string(4 * fit - 1)) == static_cast<std::uint64_t>(4 * fit));
}

TEST_CASE("what has rotted on SSD is a miss, is dropped, and is counted") {
  tiers t{1 * GiB, 1000, 1 * MiB, 64 * MiB, {write_policy::write_through, 2, 2}};
  for (int i = 0; i < 400; ++i)
    REQUIRE(t.put_patiently("k" + std::to_string(i), grain, 1 + static_cast<std::uint64_t>(i)) ==
            store_code::ok);
  REQUIRE(t.table.look("k0", t.now).places.empty());
  while (t.work()) {
  }
  const auto held = t.ends.disk.size();
  REQUIRE(t.table.find("k0", t.now).code == store_code::ok);
  REQUIRE(t.table.load("k0", t.now) == store_code::busy);
  t.work(false);
  CHECK(t.table.load("k0", t.now) == store_code::not_found);
  CHECK(t.table.counts().disk_damaged == 1);
  CHECK(t.ends.disk.size() == held - 1);
  CHECK(t.get("k1") == 2);
  CHECK(t.table.consistent());
}

TEST_CASE("two tenants, and somebody without a quota, in memory and on SSD, come and go in any order") {
  std::uint64_t loaded = 0, demoted = 0, refused = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const disk_policy policy{static_cast<write_policy>(random() % 3), 2,
                             1 + static_cast<std::uint32_t>(random() % 2)};
    const auto share = seed % 3 == 0 ? 40 * grain : any;
    tiers t{60 * grain, 20, 1 * MiB, random() % 2 ? 1 * MiB : 64 * MiB, policy, share};
    std::map<std::string, std::uint64_t> there;  // a superset
    const auto key = [&] {
      const auto name = "k" + std::to_string(random() % 40);
      const auto who = random() % 3;
      return who == 0 ? name : named(who == 1 ? "a" : "b", name);
    };
    for (std::uint64_t i = 1; i <= 1500; ++i) {
      CAPTURE(i);
      const auto k = key();
      const auto what = random() % 10;
      if (what < 4) {
        put_policy p;
        p.replace = random() % 2;
        p.lossy = random() % 8 == 0;
        const auto code = t.put(k, grain * (1 + random() % 12), i, p);
        if (code == store_code::ok) there[k] = i;
        refused += code == store_code::quota_exceeded;
      } else if (what < 7) {
        const auto got = t.get(k);
        if (got) REQUIRE(there.at(k) == *got);
      } else if (what == 7) {
        if (t.table.remove(k, true, t.now) == store_code::ok) there.erase(k);
      } else if (what == 8) {
        t.work(random() % 8 != 0);
      } else {
        t.now += std::chrono::milliseconds(random() % 800);
        t.table.tick(t.now);
        if (random() % 4 == 0) t.table.disk_fits(t.disk, MiB / 2 + grain * (random() % 400), t.now);
      }
      if (i % 20 == 0) REQUIRE(t.table.consistent());
      for (std::uint32_t who = 1; who <= 2; ++who) {
        const auto c = t.table.tenant(who).counts;
        REQUIRE(c.total_bytes - c.free_bytes <= 60 * grain);
        REQUIRE(c.disk_bytes <= share);
      }
    }
    while (t.work()) {
    }
    REQUIRE(t.table.consistent());
    loaded += t.table.counts().loaded;
    demoted += t.table.counts().demoted;
    t.table.unmount(random() % 2 ? t.disk : t.memory, t.now);
    REQUIRE(t.table.consistent());
    for (const auto& [k, value] : there) {
      t.table.remove(k, true, t.now);
      REQUIRE(t.table.look(k, t.now).code == store_code::not_found);
    }
    t.now += 10s;
    t.table.tick(t.now);
    const auto end = t.table.counts();
    CHECK(end.objects == 0);
    CHECK(end.free_bytes == end.total_bytes);
    CHECK(end.disk_bytes == 0);
  }
  // The histories have all of it in them.
  CHECK(loaded > 500);
  CHECK(demoted > 500);
  CHECK(refused > 0);
}
