#include <doctest/doctest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>

#include "runtime/base/hash.hpp"
#include "storage/objects/disk/rocksdb_object_disk.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

std::vector<std::byte> value_of(std::uint64_t seed, std::size_t size) {
  std::mt19937_64 random{seed};
  std::vector<std::byte> all(size);
  for (auto& b : all) b = static_cast<std::byte>(random());
  return all;
}

struct user {
  explicit user(const std::string& path) : disk(*rocksdb_object_disk::open({path, 64 * MiB, {}, false, {}})) {
    disk->begin_work([this](std::span<const object_disk::outcome> all) {
      std::lock_guard lock{mutex};
      for (const auto& o : all) outcomes[o.ticket] = o.good;
      changed.notify_all();
    });
  }

  bool wait(std::uint64_t ticket) {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return outcomes.count(ticket) != 0; });
    const bool good = outcomes.at(ticket);
    outcomes.erase(ticket);
    return good;
  }
  bool save(std::uint64_t ticket, const std::vector<std::byte>& bytes) {
    segment_record r;
    r.ticket = ticket;
    r.size = r.object_size = bytes.size();
    r.checksum = checksum64(bytes);
    r.published = true;
    r.key = "key-" + std::to_string(ticket);
    r.group = "group";
    r.ttl = ticket % 2 == 0 ? duration{1h} : duration{};
    disk->save(r, {bytes});
    return wait(ticket);
  }
  std::optional<std::vector<std::byte>> load(std::uint64_t ticket, std::size_t size) {
    std::vector<std::byte> into(size);
    disk->load(ticket, {into});
    if (!wait(ticket)) return std::nullopt;
    return into;
  }
  void erase(std::uint64_t ticket) {
    disk->erase(ticket);
    std::unique_lock lock{mutex};
    bool done = false;
    disk->after_erasures([&] {
      std::lock_guard inner{mutex};
      done = true;
      changed.notify_all();
    });
    changed.wait(lock, [&] { return done; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, bool> outcomes;
  std::unique_ptr<rocksdb_object_disk> disk;
};

}  // namespace

TEST_CASE("objects of any size are what they were, also after a restart, but for those that were erased") {
  const test::temp_dir folder;
  const std::size_t sizes[] = {1, 4096, 163'840, 1 * MiB, 1 * MiB + 1, 5'000'000};
  std::uint64_t number = 0;
  {
    user u{folder / "ssd"};
    number = u.disk->number();
    u.disk->start_over(77);
    for (std::uint64_t t = 0; t < std::size(sizes); ++t) REQUIRE(u.save(10 + t, value_of(t, sizes[t])));
    for (std::uint64_t t = 0; t < std::size(sizes); ++t)
      CHECK(u.load(10 + t, sizes[t]) == value_of(t, sizes[t]));
    u.erase(13);
    CHECK_FALSE(u.load(13, sizes[3]));
    CHECK(u.disk->contents().size() == 5);
  }
  user u{folder / "ssd"};
  CHECK(u.disk->number() == number);
  CHECK(u.disk->store() == 77);
  const auto held = u.disk->contents();
  REQUIRE(held.size() == 5);
  for (const auto& r : held) {
    const auto t = r.ticket - 10;
    CHECK(r.published);
    CHECK(r.size == sizes[t]);
    CHECK(r.key == "key-" + std::to_string(r.ticket));
    CHECK(r.group == "group");
    CHECK(r.checksum == checksum64(value_of(t, sizes[t])));
    CHECK((r.ttl > 59min) == (r.ticket % 2 == 0));
    CHECK(u.load(r.ticket, r.size) == value_of(t, sizes[t]));
  }
  CHECK_FALSE(u.load(13, sizes[3]));
  u.disk->start_over(78);
  u.erase(1);
  CHECK(u.disk->contents().empty());
  CHECK(u.disk->store() == 78);
}

TEST_CASE("an object is saved from pieces and read into others, wherever those end") {
  const test::temp_dir folder;
  user u{folder / "ssd"};
  const auto value = value_of(1, 3 * MiB + 77);
  const auto cut = [](auto bytes, std::initializer_list<std::size_t> lengths) {
    std::vector<decltype(bytes)> pieces;
    for (const auto n : lengths) {
      pieces.push_back(bytes.first(n));
      bytes = bytes.subspan(n);
    }
    if (!bytes.empty()) pieces.push_back(bytes);
    return pieces;
  };
  segment_record r;
  r.ticket = 5;
  r.size = r.object_size = value.size();
  r.checksum = checksum64(value);
  r.published = true;
  r.key = "k";
  u.disk->save(r, cut(std::span<const std::byte>{value}, {64 * KiB, 1 * MiB, 1, 1 * MiB}));
  REQUIRE(u.wait(5));
  std::vector<std::byte> into(value.size());
  u.disk->load(5, cut(std::span<std::byte>{into}, {1 * MiB, 128 * KiB, 1 * MiB}));
  REQUIRE(u.wait(5));
  CHECK(into == value);
  CHECK(u.load(5, value.size()) == value);
}

TEST_CASE("of many that are read at once each is reported once, when all of it is there") {
  const test::temp_dir folder;
  user u{folder / "ssd"};
  const auto size_of = [](std::uint64_t t) { return t * 300'000; };
  for (std::uint64_t t = 1; t <= 12; ++t) REQUIRE(u.save(t, value_of(t, size_of(t))));
  std::map<std::uint64_t, std::vector<std::byte>> into;
  std::map<std::uint64_t, int> reports;
  std::mutex mutex;
  std::condition_variable changed;
  u.disk->begin_work([&](std::span<const object_disk::outcome> all) {
    std::lock_guard lock{mutex};
    for (const auto& o : all) {
      ++reports[o.ticket];
      CHECK(o.good == (o.ticket <= 12));
      if (o.good) CHECK(into.at(o.ticket) == value_of(o.ticket, size_of(o.ticket)));
    }
    changed.notify_all();
  });
  for (std::uint64_t t = 1; t <= 14; ++t) into[t].resize(size_of(t));
  for (std::uint64_t t = 1; t <= 14; ++t) u.disk->load(t, {into.at(t)});
  {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return reports.size() == 14; });
  }
  u.disk->end_work();
  for (const auto& [ticket, times] : reports) CHECK(times == 1);
}

TEST_CASE("bytes that are not what the checksum says are not saved") {
  const test::temp_dir folder;
  user u{folder / "ssd"};
  segment_record r;
  r.ticket = 1;
  const auto bytes = value_of(1, 1000);
  r.size = r.object_size = bytes.size();
  r.checksum = checksum64(bytes) + 1;
  r.key = "k";
  u.disk->save(r, {bytes});
  CHECK_FALSE(u.wait(1));
  CHECK(u.disk->contents().empty());
}

TEST_CASE("a part of an object is kept under what is said of it, and is what it was") {
  const test::temp_dir folder;
  const auto bytes = value_of(1, 1 * MiB + 10);
  {
    user u{folder / "ssd"};
    segment_record r;
    r.ticket = 9;
    r.copy = 1;
    r.at = 300;
    r.size = bytes.size();
    r.object_size = 300 + r.size + 7;
    r.checksum = 1;  // of the whole
    r.key = "k";
    u.disk->save(r, {bytes});
    REQUIRE(u.wait(9));
  }
  user u{folder / "ssd"};
  const auto held = u.disk->contents();
  REQUIRE(held.size() == 1);
  CHECK(held[0].at == 300);
  CHECK(held[0].copy == 1);
  CHECK(held[0].object_size == bytes.size() + 307);
  CHECK(held[0].checksum == 1);
  CHECK(u.load(9, bytes.size()) == bytes);
}

TEST_CASE("flipped bits on the disk are noticed, in whichever chunk they are") {
  const test::temp_dir folder;
  const std::size_t size = 3 * MiB + 5;
  {
    user u{folder / "ssd"};
    for (std::uint64_t t = 1; t <= 8; ++t) REQUIRE(u.save(t, value_of(t, size)));
  }
  std::mt19937_64 random{3};
  for (const auto& file : std::filesystem::recursive_directory_iterator{folder / "ssd"}) {
    if (file.path().extension() != ".blob" && file.path().extension() != ".log") continue;
    std::fstream out{file.path(), std::ios::in | std::ios::out | std::ios::binary};
    for (int i = 0; i < 2 && file.file_size() > 4096; ++i) {
      const auto at = static_cast<std::streamoff>(random() % file.file_size());
      out.seekg(at);
      const auto was = out.get();
      out.seekp(at);
      out.put(static_cast<char>(was ^ 4));
    }
  }
  user u{folder / "ssd"};
  int good = 0;
  for (std::uint64_t t = 1; t <= 8; ++t) {
    const auto read = u.load(t, size);
    if (read) CHECK(*read == value_of(t, size));
    good += read.has_value();
  }
  CHECK(good < 8);
  CHECK(u.save(20, value_of(20, size)));
  CHECK(u.load(20, size) == value_of(20, size));
}
