#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "storage/block_record.hpp"
#include "storage/rocksdb_tier.hpp"
#include "tests/storage/ssd_fixture.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("a flipped bit anywhere in a blob file is a miss for its block and no other") {
  temp_dir dir;
  const auto names = chains(2, 6);
  for (const bool direct : {true, false}) {
    CAPTURE(direct);
    auto o = options_for(dir / (direct ? "direct" : "buffered"));
    o.direct_io = direct;
    { REQUIRE(put(*open(o), names)); }  // 240 kB: large enough to skip the log and lie in a blob file
    const auto blobs = files(o.path, ".blob");
    REQUIRE(blobs.size() == 1);
    const auto size = std::filesystem::file_size(blobs[0]);
    REQUIRE(size > names.size() * block_bytes);
    std::mt19937 random(5);
    std::size_t lost = 0;
    for (int i = 0; i < 4; ++i) flip_bit(blobs[0], 200 + random() % (size - 400));
    auto tier = open(o);
    for (const auto& n : names) lost += !serves(*tier, n.key);
    CHECK(lost <= 4);
    CHECK(lost >= 1);
    CHECK(tier->stats().blocks_corrupt == lost);
    // Dropped for good, and writable again.
    CHECK(tier->stats().blocks == names.size() - lost);
    REQUIRE(put(*tier, names));
    for (const auto& n : names) CHECK(serves(*tier, n.key));
  }
}

TEST_CASE("blocks that are read in step are told of only while all are as they should be") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  o.part_bytes = 6000;
  const auto names = chains(2, 6);
  { REQUIRE(put(*open(o), names)); }
  const auto blob = files(o.path, ".blob").at(0);
  const auto size = std::filesystem::file_size(blob);
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    const auto at = 200 + random() % (size - 400);
    flip_bit(blob, at);
    {
      auto tier = open(o);
      std::vector<std::vector<std::byte>> buffers(names.size(), std::vector<std::byte>(block_bytes));
      std::vector<get_item> items;
      for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i].key, buffers[i]});
      std::vector<std::optional<std::uint32_t>> told;
      const auto outcomes = tier->read_in_step(items, [&](auto parts) {
        told.push_back(parts);
        return true;
      });
      std::size_t bad = 0;
      for (std::size_t i = 0; i < names.size(); ++i) {
        bad += !outcomes[i];
        if (outcomes[i]) CHECK(buffers[i] == bytes_of(names[i].key, block_bytes));
      }
      CHECK(bad <= 1);  // a header of RocksDB's own may be what was hit
      REQUIRE_FALSE(told.empty());
      CHECK(told.back() == (bad > 0 ? std::nullopt : std::optional{4u}));
      for (std::size_t i = 0; i + 1 < told.size(); ++i) CHECK(told[i] == i + 1);
      if (bad > 0) REQUIRE(put(*tier, names));  // what was dropped is there again, in a file of its own
    }
    flip_bit(blob, at);
  }
}

TEST_CASE("a truncated or missing blob file never yields a wrong block") {
  const auto names = chains(2, 6);
  for (const char* damage : {"truncated", "missing", "emptied"}) {
    CAPTURE(damage);
    temp_dir dir;
    const auto o = options_for(dir / "ssd");
    { REQUIRE(put(*open(o), names)); }
    const auto blob = files(o.path, ".blob").at(0);
    if (damage[0] == 't') std::filesystem::resize_file(blob, std::filesystem::file_size(blob) / 2);
    if (damage[0] == 'e') std::filesystem::resize_file(blob, 0);
    if (damage[0] == 'm') std::filesystem::remove(blob);
    auto tier = rocksdb_tier::open(o);
    REQUIRE_MESSAGE(tier, to_string(tier.error()));
    std::size_t found = 0;
    for (const auto& n : names) found += serves(**tier, n.key);
    CHECK(found < names.size());
  }
}

TEST_CASE("a tier whose files cannot be opened moves them aside, says so, and starts empty") {
  for (const std::string name : {"MANIFEST", "CURRENT", "OPTIONS", ".sst", ".log"}) {
    for (const bool gone : {false, true}) {
      CAPTURE(name);
      CAPTURE(gone);
      temp_dir dir;
      auto o = options_for(dir / "ssd");
      std::string said;
      o.log = [&](std::string_view line) { said += std::string{line} + "\n"; };
      {
        const auto tier = open(o);
        REQUIRE(put(*tier, chains(1, 14)));       // in files
        REQUIRE(put(*tier, prompt({70, 1, 2})));  // in the log
      }
      int hit = 0;
      for (const auto& f : std::filesystem::directory_iterator(o.path)) {
        const auto file = f.path().filename().string();
        if (!file.starts_with(name) && f.path().extension() != name) continue;
        ++hit;
        if (gone) {
          std::filesystem::remove(f.path());
        } else {
          std::ofstream(f.path()) << "rubbish";
        }
      }
      REQUIRE(hit > 0);
      index_t found;
      {
        const auto tier = open(o, &found);
        CAPTURE(said);
        CHECK(tier->stats().blocks == found.size());
        if (tier->stats().repaired) {
          CHECK(found.empty());
          CHECK(said.find(o.path + "/damaged") != std::string::npos);
          CHECK_FALSE(std::filesystem::is_empty(o.path + "/damaged"));
        }
        if (name == "MANIFEST" || (name == "CURRENT" && !gone)) CHECK(tier->stats().repaired);
        for (const auto& [key, block] : found) (void)serves(*tier, key);
        REQUIRE(put(*tier, prompt({80, 1, 2})));
      }
      const auto again = open(o);  // what was moved aside is in nobody's way
      for (const auto& n : prompt({80, 1, 2})) CHECK(serves(*again, n.key));
    }
  }
}

TEST_CASE("a tier that another process has open is named as such and left as it is") {
  temp_dir dir;
  const auto o = options_for(dir / "ssd");
  { REQUIRE(put(*open(o), chains(1, 3))); }
  int ready[2], over[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(over) == 0);
  const auto child = ::fork();
  if (child == 0) {  // takes the lock as RocksDB does, whose threads are not in this copy of the process
    char c = 'n';
    struct flock whole {};
    whole.l_type = F_WRLCK;
    const int fd = ::open((o.path + "/LOCK").c_str(), O_RDWR);
    if (fd >= 0 && ::fcntl(fd, F_SETLK, &whole) == 0) c = 'y';
    (void)!::write(ready[1], &c, 1);
    (void)!::read(over[0], &c, 1);
    ::_exit(0);
  }
  char c = 0;
  REQUIRE(::read(ready[0], &c, 1) == 1);
  REQUIRE(c == 'y');
  const auto refused = rocksdb_tier::open(o);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::already_exists);
  CHECK(refused.error().detail.find("process " + std::to_string(child)) != std::string::npos);
  CHECK(refused.error().detail.find(o.path) != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(o.path + "/damaged"));
  REQUIRE(::write(over[1], &c, 1) == 1);
  ::waitpid(child, nullptr, 0);
  for (const auto fd : {ready[0], ready[1], over[0], over[1]}) ::close(fd);
  const auto tier = open(o);
  for (const auto& n : chains(1, 3)) CHECK(serves(*tier, n.key));
  const auto twice = rocksdb_tier::open(o);
  REQUIRE_FALSE(twice);
  CHECK(twice.error() == ec::already_exists);
}

TEST_CASE(
    "nobody but their owner can enter the folder, and one that an earlier version left open is closed") {
  using std::filesystem::perms;
  const auto others = perms::group_all | perms::others_all;
  const auto mode = [](const std::filesystem::path& p) { return std::filesystem::status(p).permissions(); };
  temp_dir dir;
  const auto o = options_for(dir / "ssd");
  { REQUIRE(put(*open(o), chains(2, 14))); }
  CHECK((mode(o.path) & others) == perms::none);
  const auto open_to_all = perms::owner_all | perms::group_read | perms::others_read;
  std::filesystem::permissions(o.path, open_to_all | perms::others_exec);
  const auto blobs = files(o.path, ".blob");
  REQUIRE_FALSE(blobs.empty());
  for (const auto& f : blobs) std::filesystem::permissions(f, open_to_all);
  const auto tier = open(o);
  CHECK((mode(o.path) & others) == perms::none);
  for (const auto& f : blobs) CHECK((mode(f) & others) == perms::none);
  // A folder that holds something else is not ours to close.
  REQUIRE(::mkdir((dir / "shared").c_str(), 0755) == 0);
  std::filesystem::permissions(dir / "shared", open_to_all | perms::others_exec);
  std::ofstream(dir / "shared/notes") << "of somebody";
  const auto beside = open(options_for(dir / "shared"));
  CHECK((mode(dir / "shared") & perms::others_read) == perms::others_read);
  CHECK((mode(dir / "shared/notes") & perms::others_read) == perms::others_read);
}

TEST_CASE("random damage to any file never crashes and never serves a wrong byte") {
  const auto names = chains(3, 5);
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    temp_dir dir;
    const auto o = options_for(dir / "ssd");
    {
      auto tier = open(o);
      REQUIRE(put(*tier, names));                                        // in blob files
      REQUIRE(put(*tier, prompt({50 + static_cast<int>(seed), 1, 2})));  // in the log
    }
    std::vector<std::string> all;
    for (const char* ext : {".blob", ".sst", ".log"})
      for (auto& f : files(o.path, ext)) all.push_back(f);
    for (int i = 0; i < 3; ++i) {
      const auto& f = all[random() % all.size()];
      const auto size = std::filesystem::file_size(f);
      if (size > 0) flip_bit(f, random() % size);
    }
    auto tier = rocksdb_tier::open(o);
    REQUIRE_MESSAGE(tier, to_string(tier.error()));  // a cache repairs itself
    for (const auto& n : names) (void)serves(**tier, n.key);
  }
}

TEST_CASE("garbage collection that meets damage costs the damaged blocks, not the tier") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  o.capacity_blocks = 40;
  const auto names = prompt(std::vector<int>(40, 1));
  {
    auto tier = open(o);
    for (std::size_t i = 0; i < 4; ++i)
      REQUIRE(put(*tier, {names.begin() + 10 * i, names.begin() + 10 * (i + 1)}));
  }
  for (const auto& blob : files(o.path, ".blob"))
    for (std::size_t at = 1000; at < std::filesystem::file_size(blob); at += 2 * block_bytes)
      flip_bit(blob, at);
  std::string told;
  o.log = [&](std::string_view line) { told += std::string(line) + "\n"; };
  auto tier = open(o);
  for (int round = 0; round < 6; ++round) {
    std::vector<block_key> some;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (i % 3 != 0) some.push_back(names[i].key);
    REQUIRE(tier->erase(some));
    tier->collect_garbage();
    std::vector<block_name> again;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (i % 3 != 0) again.push_back(names[i]);
    const auto written = put(*tier, again);
    REQUIRE_MESSAGE(written, to_string(written.error()));
    for (const auto& n : again) CHECK(serves(*tier, n.key));
  }
  for (const auto& n : names) (void)serves(*tier, n.key);
  CHECK(tier->stats().blocks_corrupt > 0);
  CHECK(told.find("checksum") != std::string::npos);
}

TEST_CASE("a disk that refuses writes for a while costs those writes, and nothing after") {
  // A limit on file sizes makes write() fail as a full disk does, without needing one.
  temp_dir dir;
  const auto before = prompt({1, 1, 1}), large = prompt(std::vector<int>(30, 2)), after = prompt({3, 3, 3});
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  ::signal(SIGXFSZ, SIG_IGN);
  {
    auto tier = open(options_for(dir / "ssd"));
    REQUIRE(put(*tier, before));
    const rlimit tight{15000, old.rlim_max};  // less than a block
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
    const auto refused = put(*tier, large);
    const auto refused_small = put(*tier, prompt(std::vector<int>(4, 5)));
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_FALSE(refused);
    CHECK_FALSE(refused_small);
    for (const auto& n : before) CHECK(serves(*tier, n.key));
    std::vector<block_key> failed;
    for (const auto& n : large) failed.push_back(n.key);
    CHECK_MESSAGE(tier->erase(failed), "erase");
    const auto again = put(*tier, after);
    REQUIRE_MESSAGE(again, to_string(again.error()));
    for (const auto& n : after) CHECK(serves(*tier, n.key));
    REQUIRE(put(*tier, large));
  }
  auto tier = open(options_for(dir / "ssd"));
  for (const auto* names : {&before, &large, &after})
    for (const auto& n : *names) CHECK(serves(*tier, n.key));
}

TEST_CASE("any bytes can be offered as a block header") {
  const block_record record{ours, prompt({1, 2})[1], block_bytes, 77, 5};
  const auto good = record.encode();
  const auto read = block_record::decode(good);
  REQUIRE(read);
  CHECK(read->name == record.name);
  CHECK(read->checksum == 77);
  CHECK(read->written == 5);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= std::byte(1 << (bit % 8));
    CHECK_FALSE(block_record::decode(bad));
  }
  for (std::size_t n = 0; n < good.size(); ++n) CHECK_FALSE(block_record::decode(std::span{good}.first(n)));
}

// The process that the next test kills: writes blocks and reports each acknowledged batch on descriptor 3.
TEST_CASE("crash child" * doctest::skip()) {
  const char* path = std::getenv("MOONCAF_TEST_SSD");
  if (!path) return;
  auto tier = open(options_for(path));
  for (int batch = 0;; ++batch) {
    // Small batches go through the log, large ones past it.
    const auto names = prompt(std::vector<int>(batch % 3 == 2 ? 12 : 1, batch));
    if (!put(*tier, names)) ::_exit(3);
    if (batch % 5 == 4 && !tier->erase(std::vector{prompt({batch - 4})[0].key})) ::_exit(3);
    if (::write(3, &batch, sizeof batch) != sizeof batch) ::_exit(4);
  }
}

TEST_CASE("kill -9 in the middle of writing loses no acknowledged block") {
  for (const int acknowledged : {1, 7, 40}) {
    CAPTURE(acknowledged);
    temp_dir dir;
    const std::string path = dir / "ssd";
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      if (ends[1] == 3) ::fcntl(3, F_SETFD, 0);
      if (ends[1] != 3) ::dup2(ends[1], 3);
      ::setenv("MOONCAF_TEST_SSD", path.c_str(), 1);
      ::execl("/proc/self/exe", "child", "--no-skip", "--test-case=crash child", "--minimal", nullptr);
      ::_exit(5);
    }
    ::close(ends[1]);
    int last = -1;
    while (last + 1 < acknowledged && ::read(ends[0], &last, sizeof last) == sizeof last) {
    }
    REQUIRE(last + 1 == acknowledged);
    ::kill(child, SIGKILL);
    // What it acknowledged between our decision and its death counts, too.
    for (int more; ::read(ends[0], &more, sizeof more) == sizeof more;) last = more;
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));

    index_t index;
    auto tier = open(options_for(path), &index);
    for (int batch = 0; batch <= last; ++batch) {
      CAPTURE(batch);
      const bool erased = batch % 5 == 0 && batch + 4 <= last;
      const bool maybe_erased = batch % 5 == 0 && batch + 4 == last + 1;
      for (const auto& n : prompt(std::vector<int>(batch % 3 == 2 ? 12 : 1, batch))) {
        if (maybe_erased) continue;
        const bool root_erased = erased && n.depth == 0;
        CHECK(index.contains(n.key) == !root_erased);
        CHECK(serves(*tier, n.key) == !root_erased);
      }
    }
  }
}
