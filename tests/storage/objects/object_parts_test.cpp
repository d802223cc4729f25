// Objects in stripes in the memory of several holders, and in parts on their SSDs, with holders and the
// directory that come and go: the table against a model of what holders and their disks hold.

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "storage/objects/table/object_table.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t stripe = object_table::stripe_bytes_min;

/// Bytes are known by the value that they belong to and by where in it they are.
struct piece {
  std::uint64_t value = 0, at = 0, bytes = 0;
};

/// Holders of memory and of an SSD each, all that they hear of is done at once but for what their disks do,
/// and a directory that is replaced by another when it is killed. What it notes of disks that are away is
/// kept, as in `disk_notes`.
struct holders : object_journal {
  struct kept {
    segment_record record;
    piece bytes;
  };
  struct one {
    std::uint32_t memory = 0, disk = 0;  ///< zero: away
    std::map<std::uint64_t, kept> on_disk;
    std::set<std::string> noted;
  };
  struct job {
    std::uint32_t disk = 0;
    bool loads = false;
    segment_record record;
    std::vector<replica_place> places;
  };

  holders(std::size_t n, std::uint64_t each, std::uint64_t disk, disk_policy policy)
      : memory_bytes(each), disk_bytes(disk), how(policy), all(n) {
    begin_directory();
    for (std::size_t i = 0; i < n; ++i) bring(i);
  }

  void begin_directory() {
    object_table_options o;
    o.lease = std::chrono::seconds(10);
    o.lease = 1s;
    o.quarantine = 2s;
    o.first_ticket = tickets += 1'000'000;
    table = std::make_unique<object_table>(o, this);
    jobs.clear();
    memory.clear();
    std::vector<std::size_t> here;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].disk = 0;
      if (std::exchange(all[i].memory, 0) != 0) here.push_back(i);
    }
    for (const auto i : here) bring(i);
  }
  /// A process with fresh memory, and what is on its SSD.
  void bring(std::size_t i) {
    auto& l = all[i];
    const auto name = "m" + std::to_string(i);
    l.memory = table->mount(name, "h" + std::to_string(i), memory_bytes);
    l.disk = table->mount_disk(name + "/ssd", "h" + std::to_string(i), disk_bytes, l.memory, how);
    const auto found = l.on_disk;
    for (const auto& [ticket, k] : found) {
      auto record = k.record;
      const bool stale = l.noted.count(record.key) != 0;
      if (!table->recover_on_disk(l.disk, std::move(record), stale, now)) l.on_disk.erase(ticket);
    }
    l.noted.clear();
    table->disk_open(l.disk);
  }
  void kill(std::size_t i) {
    auto& l = all[i];
    const auto disk = std::exchange(l.disk, 0), mem = std::exchange(l.memory, 0);
    std::erase_if(jobs, [&](const job& j) { return j.disk == disk; });
    table->unmount(mem, now);
    table->unmount(disk, now);
  }

  one* holder_of(std::uint32_t disk) {
    for (auto& l : all)
      if (disk != 0 && l.disk == disk) return &l;
    return nullptr;
  }
  void reserved(std::uint32_t, const segment_record&) override {}
  void published(std::uint32_t, const segment_record&, std::string_view, std::string_view) override {}
  void freed(std::uint32_t, std::uint64_t, std::uint64_t, duration) override {}
  void erased(std::uint32_t disk, std::uint64_t ticket, std::string_view) override {
    if (auto* const l = holder_of(disk)) l->on_disk.erase(ticket);
    std::erase_if(jobs,
                  [&](const job& j) { return !j.loads && j.disk == disk && j.record.ticket == ticket; });
  }
  void changed(std::string_view key) override {
    for (auto& l : all)
      if (l.memory == 0) l.noted.emplace(key);
  }
  void save(std::uint32_t disk, const segment_record& r, std::string_view key, std::string_view group,
            std::span<const replica_place> from) override {
    job j{disk, false, r, {from.begin(), from.end()}};
    j.record.key = key;
    j.record.group = group;
    jobs.push_back(std::move(j));
  }
  void load(std::uint32_t disk, std::uint64_t ticket, std::span<const replica_place> to) override {
    segment_record r;
    r.ticket = ticket;
    jobs.push_back({disk, true, r, {to.begin(), to.end()}});
  }

  /// @returns whether any disk had something to do. @param good  what that one says to it.
  bool work(bool good = true, std::size_t which = 0) {
    if (jobs.empty()) return false;
    const auto j = jobs[which % jobs.size()];
    jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(which % jobs.size()));
    auto& l = *holder_of(j.disk);
    if (j.loads) {
      const auto found = l.on_disk.find(j.record.ticket);
      if (found == l.on_disk.end()) {  // it is gone: nobody waits for it
        table->disk_done(j.disk, j.record.ticket, false, now);
        return true;
      }
      parts_read += found->second.record.size < found->second.record.object_size;
      auto at = found->second.bytes.at;
      for (const auto& p : j.places) {
        REQUIRE(p.segment == l.memory);
        if (good) memory[{p.segment, p.offset}] = {found->second.bytes.value, at, p.bytes};
        at += p.bytes;
      }
      REQUIRE(at == found->second.bytes.at + found->second.bytes.bytes);
    } else if (good) {
      auto next = j.record.at;
      for (const auto& p : j.places) {
        REQUIRE(p.segment == l.memory);
        const auto& had = memory.at({p.segment, p.offset});
        REQUIRE(had.value == j.record.checksum);
        REQUIRE(had.at == next);
        REQUIRE(had.bytes == p.bytes);
        next += p.bytes;
      }
      REQUIRE(next == j.record.at + j.record.size);
      l.on_disk[j.record.ticket] = {j.record, {j.record.checksum, j.record.at, j.record.size}};
      parts_saved += j.record.size < j.record.object_size;
    }
    table->disk_done(j.disk, j.record.ticket, good, now);
    return true;
  }
  void work_off() {
    while (work()) {
    }
  }

  store_code put(const std::string& key, std::uint64_t size, put_policy policy = {}) {
    for (;;) {
      const auto made = table->reserve(1, key, size, policy, {}, now);
      if (made.code == store_code::busy && work()) continue;
      if (made.code != store_code::ok) return made.code;
      ++values;
      for (const auto replica : replicas_of(made.places, size)) {
        std::uint64_t at = 0;
        for (const auto& p : replica)
          memory[{p.segment, p.offset}] = {values, std::exchange(at, at + p.bytes), p.bytes};
      }
      return table->publish(1, made.ticket, values, now);
    }
  }
  /// The value, or nothing. Every replica in memory has all of it, in its order.
  std::optional<std::uint64_t> get(const std::string& key) {
    auto seen = table->find(key, now);
    while (seen.code == store_code::ok && seen.places.empty()) {
      const auto code = table->load(key, now);
      if (code == store_code::busy && work()) continue;
      if (code != store_code::ok) return std::nullopt;
      table->hold(key, now);
      seen = table->look(key, now);
    }
    if (seen.code != store_code::ok) return std::nullopt;
    for (const auto replica : replicas_of(seen.places, seen.size)) {
      std::uint64_t at = 0;
      for (const auto& p : replica) {
        const auto& there = memory.at({p.segment, p.offset});
        REQUIRE(there.value == seen.checksum);
        REQUIRE(there.at == at);
        at += p.bytes;
      }
      REQUIRE(at == seen.size);
    }
    return seen.checksum;
  }
  bool is_there(const std::string& key) { return table->look(key, now).code == store_code::ok; }
  std::size_t parts_on(std::size_t i) const { return all[i].on_disk.size(); }
  void later(duration d) {
    now += d;
    table->tick(now);
  }

  std::uint64_t memory_bytes, disk_bytes;
  disk_policy how;
  std::vector<one> all;
  std::unique_ptr<object_table> table;
  std::map<std::pair<std::uint32_t, std::uint64_t>, piece> memory;
  std::vector<job> jobs;
  std::uint64_t tickets = 0, values = 0, parts_saved = 0, parts_read = 0;
  time_point now{1h};
};

/// Two holders, and an object that neither's memory holds, on both SSDs and in no memory.
struct wide_object : holders {
  wide_object() : holders(2, 32 * stripe, 1000 * stripe, {write_policy::write_through, 2, 9}) {
    REQUIRE(put("wide", 40 * stripe - 5) == store_code::ok);
    work_off();
    REQUIRE(parts_saved == parts_on(0) + parts_on(1));
    REQUIRE(parts_on(0) > 0);
    REQUIRE(parts_on(1) > 0);
    REQUIRE(table->counts().saved == 1);
    for (int i = 0; i < 40; ++i) REQUIRE(put("small-" + std::to_string(i), stripe) == store_code::ok);
    work_off();
    REQUIRE(table->look("wide", now).places.empty());
    REQUIRE(table->look("wide", now).disks.size() == 2);
    REQUIRE(table->consistent());
  }
  std::uint64_t wide_parts() const {
    std::uint64_t n = 0;
    for (const auto& l : all)
      for (const auto& [ticket, k] : l.on_disk) n += k.record.key == "wide";
    return n;
  }
};

}  // namespace

TEST_CASE_FIXTURE(wide_object,
                  "what lies in stripes with several holders is saved by each and comes back from all") {
  for (int i = 0; i < 3; ++i) {
    CHECK(get("wide") == 1);
    CHECK(table->consistent());
    later(2s);
    CHECK(table->look("wide", now).places.empty());
  }
  CHECK(table->counts().loaded == 3);
  REQUIRE(table->remove("wide", true, now) == store_code::ok);
  CHECK(wide_parts() == 0);
  CHECK(table->consistent());
}

TEST_CASE_FIXTURE(wide_object,
                  "an object in parts is a miss while one of its holders is away, and back with it") {
  for (const std::size_t gone : {0, 1}) {
    CAPTURE(gone);
    kill(gone);
    CHECK_FALSE(is_there("wide"));
    CHECK(wide_parts() > 1);
    CHECK(table->consistent());
    bring(gone);
    CHECK(get("wide") == 1);
    CHECK(table->consistent());
    later(2s);
  }
  // The next directory shows it when all have announced their parts.
  kill(0);
  begin_directory();
  CHECK_FALSE(is_there("wide"));
  bring(0);
  CHECK(get("wide") == 1);
  // One that goes while it reads.
  later(2s);
  REQUIRE(table->find("wide", now).code == store_code::ok);
  REQUIRE(table->load("wide", now) == store_code::busy);
  kill(1);
  work_off();
  CHECK_FALSE(is_there("wide"));
  CHECK(table->consistent());
  bring(1);
  CHECK(get("wide") == 1);
  CHECK(table->consistent());
}

TEST_CASE_FIXTURE(wide_object,
                  "parts of what was removed or replaced while another holder was away are erased") {
  kill(0);
  CHECK(table->remove("wide", true, now) == store_code::not_found);
  changed("wide");  // as the directory says it for what it does not find
  CHECK(all[1].on_disk.size() == parts_on(1));
  bring(0);
  CHECK_FALSE(is_there("wide"));
  CHECK(wide_parts() == 0);
  REQUIRE(put("wide", 40 * stripe) == store_code::ok);
  work_off();
  kill(1);
  REQUIRE(wide_parts() > 0);
  REQUIRE(put("wide", stripe) == store_code::ok);
  work_off();
  bring(1);
  CHECK(get("wide") == values);
  CHECK(wide_parts() == 1);
  kill(0);
  begin_directory();  // and one that finds a part of what another SSD knows to be gone
  CHECK(table->consistent());
  CHECK(table->remove_if([](std::string_view) { return true; }, true, now) > 0);
  for (auto& [ticket, k] : all[0].on_disk) all[0].noted.insert(k.record.key);
  bring(0);
  CHECK(parts_on(0) + parts_on(1) == 0);
  CHECK(table->counts().disk_bytes == 0);
}

TEST_CASE_FIXTURE(wide_object, "where one part cannot be read, or written, the others are erased") {
  REQUIRE(table->find("wide", now).code == store_code::ok);
  REQUIRE(table->load("wide", now) == store_code::busy);
  REQUIRE(jobs.size() == wide_parts());
  work();
  work(false);
  CHECK(table->load("wide", now) == store_code::not_found);
  CHECK(wide_parts() == 0);
  CHECK(table->counts().disk_damaged == 1);
  CHECK(table->consistent());
  work_off();  // those that were being read
  CHECK(table->consistent());
  REQUIRE(put("wide", 40 * stripe) == store_code::ok);
  while (jobs.size() > 1) work();
  work(false);
  CHECK(wide_parts() == 0);
  CHECK(table->counts().save_failures == 1);
  CHECK(get("wide") == values);
  CHECK(table->consistent());
}

TEST_CASE("parts whose others are away give way before anything that is seen") {
  holders w{2, 32 * stripe, 64 * stripe, {write_policy::write_through, 2, 9}};
  REQUIRE(w.put("wide", 40 * stripe) == store_code::ok);
  w.work_off();
  REQUIRE(w.table->remove("wide", true, w.now) == store_code::ok);
  REQUIRE(w.put("wide", 40 * stripe) == store_code::ok);
  w.work_off();
  w.later(2s);
  w.kill(1);
  REQUIRE(w.parts_on(0) > 0);
  for (int i = 0; i < 60; ++i) REQUIRE(w.put("k" + std::to_string(i), stripe) == store_code::ok);
  w.work_off();
  CHECK(w.table->counts().disk_evictions == 0);
  for (int i = 0; i < 60; ++i) CHECK(w.is_there("k" + std::to_string(i)));
  w.bring(1);  // what it brings waits for what has made way
  CHECK_FALSE(w.is_there("wide"));
  CHECK(w.table->consistent());
  CHECK(w.table->remove("wide", true, w.now) == store_code::not_found);
  CHECK(w.parts_on(1) == 0);
}

TEST_CASE("wide and small objects, holders and directories come and go in any order, and no byte is wrong") {
  std::uint64_t saved = 0, read = 0, recovered = 0, damaged = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const disk_policy policy{random() % 2 ? write_policy::write_through : write_policy::write_back, 2,
                             1 + static_cast<std::uint32_t>(random() % 3)};
    holders w{2 + random() % 2, 48 * stripe, random() % 2 ? 100 * stripe : 1000 * stripe, policy};
    std::map<std::string, std::uint64_t> there;  // a superset
    for (int i = 0; i < 800; ++i) {
      CAPTURE(i);
      const auto key = "k" + std::to_string(random() % 20);
      const auto what = random() % 20;
      const auto who = random() % w.all.size();
      if (what < 7) {
        put_policy p;
        p.replace = random() % 2;
        p.lossy = random() % 8 == 0;
        p.replicas = 1 + static_cast<std::uint32_t>(random() % 8 == 0);
        if (w.put(key, 1 + random() % ((random() % 3 ? 10 : 70) * stripe), p) == store_code::ok)
          there[key] = w.values;
      } else if (what < 10) {  // and comes back for it later, or not
        if (w.table->find(key, w.now).code == store_code::ok) static_cast<void>(w.table->load(key, w.now));
      } else if (what < 13) {
        if (const auto got = w.get(key)) REQUIRE(there.at(key) == *got);
      } else if (what == 13) {
        const auto code = w.table->remove(key, true, w.now);
        if (code == store_code::not_found) w.changed(key);
        if (code == store_code::ok || code == store_code::not_found) there.erase(key);
      } else if (what < 17) {
        w.work(random() % 10 != 0, random());
      } else if (what == 17) {
        w.later(std::chrono::milliseconds(random() % 1500));
      } else if (w.all[who].memory == 0) {
        w.bring(who);
      } else if (random() % 3 == 0) {
        w.kill(who);
      } else if (random() % 8 == 0) {
        recovered += w.table->counts().disk_recovered;
        w.begin_directory();
      }
      if (i % 10 == 0) REQUIRE(w.table->consistent());
    }
    saved += w.parts_saved;
    read += w.parts_read;
    recovered += w.table->counts().disk_recovered;
    damaged += w.table->counts().disk_damaged;
    for (std::size_t i = 0; i < w.all.size(); ++i)
      if (w.all[i].memory == 0) w.bring(i);
    w.work_off();
    // The table knows of everything that lies there, and nothing stays when all is removed.
    std::uint64_t held = 0;
    for (const auto& l : w.all)
      for (const auto& [ticket, k] : l.on_disk) held += k.record.size;
    REQUIRE(w.table->counts().disk_bytes == held);
    w.table->remove_if([](std::string_view) { return true; }, true, w.now);
    w.work_off();
    w.later(10s);
    REQUIRE(w.table->consistent());
    for (std::size_t i = 0; i < w.all.size(); ++i) CHECK(w.parts_on(i) == 0);
    const auto end = w.table->counts();
    CHECK(end.objects == 0);
    CHECK(end.disk_bytes == 0);
    CHECK(end.free_bytes == end.total_bytes);
  }
  // The histories have all of it in them.
  CHECK(saved > 2000);
  CHECK(read > 200);
  CHECK(recovered > 500);
  CHECK(damaged > 10);
}
