#include "storage/rocksdb_tier.hpp"

#include <doctest/doctest.h>
#include <rocksdb/db.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "storage/block_record.hpp"
#include "storage/reader_pool.hpp"
#include "tests/storage/ssd_fixture.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("blocks come back as they were written, one by one and many at a time") {
  temp_dir dir;
  auto tier = open(options_for(dir / "ssd"));
  const auto names = chains(5, 4);
  REQUIRE(put(*tier, names));
  std::vector<std::vector<std::byte>> buffers(names.size(), std::vector<std::byte>(block_bytes));
  std::vector<get_item> items;
  for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i].key, buffers[i]});
  const block_key absent{9, 9};
  std::vector<std::byte> spare(block_bytes);
  items.push_back({absent, spare});
  const auto outcomes = tier->multi_get(items);
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(outcomes[i]);
    CHECK(buffers[i] == bytes_of(names[i].key, block_bytes));
    CHECK(serves(*tier, names[i].key));
  }
  CHECK(outcomes.back().error().code == ec::not_found);
  CHECK(tier->stats().blocks == 20);
}

TEST_CASE("a restart finds every block with its place in its prompt") {
  temp_dir dir;
  const auto names = chains(4, 5);
  {
    auto tier = open(options_for(dir / "ssd"));
    REQUIRE(put(*tier, names));
    REQUIRE(tier->erase(std::vector{names[19].key}));
  }
  index_t index;
  auto tier = open(options_for(dir / "ssd"), &index);
  CHECK(index.size() == 19);
  for (std::size_t i = 0; i < 19; ++i) {
    CHECK(index.at(names[i].key).name == names[i]);
    CHECK(index.at(names[i].key).checksum == checksum64(bytes_of(names[i].key, block_bytes)));
    CHECK(serves(*tier, names[i].key));
  }
  CHECK_FALSE(serves(*tier, names[19].key));
}

TEST_CASE("blocks of another model are a miss and make room") {
  temp_dir dir;
  const auto names = chains(1, 3);
  { REQUIRE(put(*open(options_for(dir / "ssd")), names)); }
  auto other = options_for(dir / "ssd");
  other.fingerprint = {3, 4};
  std::string told;
  other.log = [&](std::string_view line) { told += line; };
  {
    index_t index;
    auto tier = open(other, &index);
    CHECK(index.empty());
    CHECK_FALSE(serves(*tier, names[0].key));
    CHECK(told.find("3 blocks of another model") != std::string::npos);
  }
  index_t index;
  open(options_for(dir / "ssd"), &index);
  CHECK(index.empty());
}

TEST_CASE("the capacity holds, overwriting needs no room, erasing makes room") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  o.capacity_blocks = 3;
  auto tier = open(o);
  const auto names = chains(1, 4);
  REQUIRE(put(*tier, {names[0], names[1], names[2]}));
  CHECK(put(*tier, {names[3]}).error().code == ec::out_of_space);
  CHECK(put(*tier, {names[1]}));
  REQUIRE(tier->erase(std::vector{names[2].key, block_key{5, 5}}));
  CHECK(put(*tier, {names[3]}));
  CHECK(tier->stats().blocks == 3);
}

TEST_CASE("blocks and buffers of a wrong size are refused") {
  temp_dir dir;
  auto tier = open(options_for(dir / "ssd"));
  const auto name = chains(1, 1)[0];
  const std::vector<std::byte> small(10);
  const put_item item{{name, 0}, small};
  CHECK(tier->put({&item, 1}).error().code == ec::invalid_argument);
  std::vector<std::byte> into(10);
  REQUIRE(put(*tier, {name}));
  CHECK(tier->get({name.key, into}).error().code == ec::invalid_argument);
  CHECK(serves(*tier, name.key));
}

TEST_CASE("options out of range are refused by name") {
  temp_dir dir;
  auto o = options_for("");
  CHECK(rocksdb_tier::open(o).error().code == ec::invalid_argument);
  o = options_for(dir / "ssd");
  o.read_threads = 0;
  CHECK(rocksdb_tier::open(o).error().code == ec::invalid_argument);
  o = options_for(dir / "ssd");
  o.block_bytes = 0;
  CHECK(rocksdb_tier::open(o).error().code == ec::invalid_argument);
  std::ofstream(dir / "file") << "x";
  const auto no_directory = rocksdb_tier::open(options_for(dir / "file"));
  REQUIRE_FALSE(no_directory);
  CHECK(no_directory.error().detail.find(dir / "file") != std::string::npos);
}

TEST_CASE("a tier on a filesystem without direct I/O says so and works") {
  // overlayfs and tmpfs differ by kernel, so only the promise is checked: it opens, and tells if it fell
  // back.
  if (!std::filesystem::exists("/dev/shm")) return;
  const std::string path = "/dev/shm/mooncaf-ssd-" + std::to_string(::getpid());
  auto o = options_for(path);
  bool told = false;
  o.log = [&](std::string_view line) { told |= line.find("direct I/O") != std::string_view::npos; };
  {
    auto tier = open(o);
    CHECK(told == !tier->direct_io());
    const auto name = chains(1, 1)[0];
    REQUIRE(put(*tier, {name}));
    CHECK(serves(*tier, name.key));
  }
  std::filesystem::remove_all(path);
}

TEST_CASE("erased blocks give their disk space back, in whatever order they were erased") {
  for (const bool oldest_first : {true, false}) {
    CAPTURE(oldest_first);
    temp_dir dir;
    auto o = options_for(dir / "ssd");
    o.capacity_blocks = 80;
    o.flush_bytes = 200000;
    auto tier = open(o);
    std::mt19937 random(3);
    std::vector<block_key> live;
    for (int round = 0; round < 60; ++round) {
      const auto names = prompt(std::vector<int>(20, round));
      if (live.size() == 80) {
        if (!oldest_first) std::shuffle(live.begin(), live.end(), random);
        REQUIRE(tier->erase(std::span{live}.first(20)));
        live.erase(live.begin(), live.begin() + 20);
      }
      REQUIRE(put(*tier, names));
      for (const auto& n : names) live.push_back(n.key);
    }
    CHECK(tier->stats().disk_bytes < 3 * 80 * block_bytes);  // on its own
    tier->collect_garbage();
    CHECK(tier->stats().blocks == 80);
    CHECK(tier->stats().disk_bytes < 80 * block_bytes * 16 / 10);
    for (const auto& key : live) CHECK(serves(*tier, key));
  }
}

TEST_CASE("a reader pool runs every index once, whatever the number of threads") {
  for (unsigned threads : {1u, 2u, 5u}) {
    reader_pool pool(threads);
    for (std::size_t count : {0u, 1u, 3u, 1000u}) {
      std::vector<std::atomic<int>> calls(count);
      pool.run(count, [&](std::size_t i) { ++calls[i]; });
      for (auto& c : calls) CHECK(c == 1);
    }
  }
}

TEST_CASE("blocks that are read in step have their first parts before any has its second") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  o.part_bytes = 6000;  // 4 parts, the last one shorter
  const auto names = chains(3, 4);
  { REQUIRE(put(*open(o), names)); }
  auto tier = open(o);
  std::vector<std::vector<std::byte>> buffers(names.size(), std::vector<std::byte>(block_bytes));
  std::vector<get_item> items;
  for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i].key, buffers[i]});
  std::vector<std::uint32_t> told;
  const auto outcomes = tier->read_in_step(items, [&](std::optional<std::uint32_t> parts) {
    REQUIRE(parts);
    told.push_back(*parts);
    const auto end = std::min<std::size_t>(*parts * o.part_bytes, block_bytes);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto right = bytes_of(names[i].key, block_bytes);
      CHECK(std::equal(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(end), buffers[i].begin()));
      const bool rest =
          std::ranges::all_of(std::span{buffers[i]}.subspan(end), [](auto b) { return b == std::byte{}; });
      CHECK(rest);
    }
    return true;
  });
  CHECK(told == std::vector<std::uint32_t>{1, 2, 3, 4});
  for (const auto& outcome : outcomes) CHECK(outcome);
  for (const auto& n : names) CHECK(serves(*tier, n.key));  // whole ones as well
  // Who wants no more of it after the second part gets no third one.
  for (auto& buffer : buffers) std::ranges::fill(buffer, std::byte{});
  const auto stopped =
      tier->read_in_step(items, [&](std::optional<std::uint32_t> parts) { return *parts < 2; });
  for (std::size_t i = 0; i < names.size(); ++i) {
    REQUIRE_FALSE(stopped[i]);
    CHECK(stopped[i].error() == ec::cancelled);
    const auto behind = std::span{buffers[i]}.subspan(2 * o.part_bytes);
    CHECK(std::ranges::all_of(behind, [](auto b) { return b == std::byte{}; }));
    CHECK(serves(*tier, names[i].key));
  }
  REQUIRE(tier->erase(std::vector{names[0].key}));
  CHECK_FALSE(serves(*tier, names[0].key));
}

TEST_CASE("a block's header has the bytes that folders of this version have") {
  // A release that changes them raises the version, and reads the one before: folders outlive programs.
  const block_record r{{1, 2}, {{3, 4}, {5, 6}, 7}, 8, 9, 10, 11, 12};
  CHECK(block_record::version == 2);
  CHECK(to_string(hash_bytes128(r.encode())) == "5412dccd998db6f10c474b5506d091c3");
}

TEST_CASE("blocks in other parts, or of another version, are dropped, said, and written anew") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  const auto names = chains(1, 3);
  std::string told;
  o.log = [&](std::string_view line) { told += line; };
  const char* expected = "3 blocks of another model or layout";
  SUBCASE("in one piece") { REQUIRE(put(*open(o), names)); }
  SUBCASE("version 1") {
    { open(o); }
    std::vector<rocksdb::ColumnFamilyHandle*> families;
    rocksdb::DB* db = nullptr;
    REQUIRE(rocksdb::DB::Open({}, o.path, {{"default", {}}, {"metadata", {}}}, &families, &db).ok());
    for (const auto& n : names) {
      // As the first version wrote it: 96 bytes, the checksum of 88 of them at their end.
      auto now = block_record{ours, n, block_bytes, 77, 5}.encode();
      std::array<std::byte, 96> head;
      std::copy_n(now.begin(), 96, head.begin());
      head[8] = std::byte{1};
      const auto sum = checksum64(std::span{head}.first(88));
      std::memcpy(head.data() + 88, &sum, 8);
      const auto key = encode_key(n.key);
      const std::string value(reinterpret_cast<const char*>(head.data()), head.size());
      REQUIRE(db->Put({}, families[1], {key.data(), key.size()}, value).ok());
      REQUIRE(db->Put({}, families[0], {key.data(), key.size()}, value + std::string(block_bytes, 'x')).ok());
    }
    for (auto* family : families) REQUIRE(db->DestroyColumnFamilyHandle(family).ok());
    delete db;
    expected = "3 blocks that another version";
  }
  o.part_bytes = 6000;
  index_t found;
  {
    const auto tier = open(o, &found);
    CHECK(found.empty());
    CHECK_MESSAGE(told.find(expected) != std::string::npos, told);
    CHECK_FALSE(tier->stats().repaired);
    CHECK(tier->stats().blocks_corrupt == 0);
    for (const auto& n : names) CHECK_FALSE(serves(*tier, n.key));
    REQUIRE(put(*tier, names));
  }
  told.clear();
  const auto again = open(o, &found);
  CHECK(found.size() == 3);
  CHECK(told.find("drops") == std::string::npos);
  for (const auto& n : names) CHECK(serves(*again, n.key));
}
