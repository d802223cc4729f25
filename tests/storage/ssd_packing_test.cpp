// Blocks of floating-point numbers take less of a disk than of memory.

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/storage/ssd_fixture.hpp"
#include "tests/support/half_floats.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

std::vector<std::byte> numbers_of(const block_key& key) {
  std::mt19937_64 random{key.low};
  return bf16_numbers(block_bytes / 2, random);
}

result<void> put_numbers(rocksdb_tier& tier, std::span<const block_name> names) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<put_item> items;
  for (const auto& n : names) bytes.push_back(numbers_of(n.key));
  for (std::size_t i = 0; i < names.size(); ++i)
    items.push_back({{names[i], checksum64(bytes[i])}, bytes[i]});
  return tier.put(items);
}

/// @returns how many are served; each is what it was.
std::size_t served(rocksdb_tier& tier, std::span<const block_name> names) {
  std::vector<std::vector<std::byte>> buffers(names.size(), std::vector<std::byte>(block_bytes));
  std::vector<get_item> items;
  for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i].key, buffers[i]});
  std::size_t good = 0;
  const auto outcomes = tier.multi_get(items);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!outcomes[i]) continue;
    ++good;
    CHECK(buffers[i] == numbers_of(names[i].key));
  }
  return good;
}

}  // namespace

TEST_CASE(
    "blocks of numbers are packed, in parts or whole, and found again after a restart with their room") {
  temp_dir dir;
  for (const std::size_t part : {std::size_t{0}, std::size_t{7000}}) {
    CAPTURE(part);
    auto o = options_for(dir / ("ssd" + std::to_string(part)));
    o.part_bytes = part;
    const auto names = chains(8, 5);
    packed_bytes held;
    {
      auto tier = open(o);
      REQUIRE(put_numbers(*tier, names));
      held = tier->stats().held;
      CHECK(held.bytes() == names.size() * block_bytes);
      CHECK(held.stored() < held.bytes() * 3 / 4);
      CHECK(tier->stats().disk_bytes < held.bytes() * 4 / 5);
      CHECK(served(*tier, names) == names.size());
    }
    auto tier = open(o);
    CHECK(tier->stats().held.bytes() == held.bytes());
    CHECK(tier->stats().held.stored() == held.stored());
    CHECK(served(*tier, names) == names.size());
    std::vector<std::vector<std::byte>> buffers(names.size(), std::vector<std::byte>(block_bytes));
    std::vector<get_item> items;
    for (std::size_t i = 0; i < names.size(); ++i) items.push_back({names[i].key, buffers[i]});
    for (const auto& outcome : tier->read_in_step(items, [](auto) { return true; })) CHECK(outcome);
    for (std::size_t i = 0; i < names.size(); ++i) CHECK(buffers[i] == numbers_of(names[i].key));
    std::vector<block_key> all;
    for (const auto& n : names) all.push_back(n.key);
    REQUIRE(tier->erase(all));
    CHECK(tier->stats().held.stored() == 0);
  }
}

TEST_CASE("a folder is read whether or not its blocks are packed, and whoever opens it packs or does not") {
  temp_dir dir;
  auto packs = options_for(dir / "ssd"), does_not = packs;
  does_not.pack = false;
  const auto names = chains(2, 4);
  const std::span all{names};
  REQUIRE(put_numbers(*open(packs), all.first(3)));
  {
    auto tier = open(does_not);
    CHECK(served(*tier, all) == 3);
    const auto before = tier->stats().held.stored();
    REQUIRE(put_numbers(*tier, all.subspan(3)));
    CHECK(tier->stats().held.stored() == before + 5 * block_bytes);
  }
  CHECK(served(*open(packs), all) == all.size());
}

TEST_CASE("more packed blocks fit than plain ones, and what packs worse later has its room made") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  o.capacity_blocks = 64;
  auto tier = open(o);
  const auto capacity = o.capacity_blocks * block_bytes;
  const auto fitting = [&] { return tier->stats().held.fitting(capacity) / block_bytes; };
  CHECK(fitting() == 64);
  const auto names = chains(20, 10);
  std::size_t n = 0;
  for (; n < fitting(); ++n) REQUIRE(put_numbers(*tier, std::span{names}.subspan(n, 1)));
  CHECK(n >= 64 * 4 / 3);
  CHECK(tier->stats().held.stored() <= capacity);
  CHECK(served(*tier, std::span{names}.first(n)) == n);
  // From now on nothing packs; what is too much leaves, oldest first, as its owner does it.
  for (std::size_t gone = 0; n < names.size(); ++n) {
    while (n - gone + 1 > fitting()) REQUIRE(tier->erase(std::vector{names[gone++].key}));
    REQUIRE(put(*tier, {names[n]}));
    CHECK(tier->stats().held.stored() <= capacity + o.flush_bytes);
  }
  CHECK(fitting() < 70);
}

TEST_CASE("a packed block with a flipped bit is a miss, wherever the bit is") {
  temp_dir dir;
  const auto o = options_for(dir / "ssd");
  const auto names = chains(6, 5);
  REQUIRE(put_numbers(*open(o), names));
  std::mt19937_64 random{5};
  std::size_t lost = 0;
  for (int round = 0; round < 12; ++round) {
    for (const auto& file : files(o.path, ".blob"))
      flip_bit(file, static_cast<std::size_t>(random() % std::filesystem::file_size(file)));
    const auto good = served(*open(o), names);
    CHECK(good + lost <= names.size());
    lost = names.size() - good;
  }
  CHECK(lost > 0);
}

TEST_CASE("objects of any size count as what they take, whichever of them go") {
  temp_dir dir;
  auto o = options_for(dir / "ssd");
  o.any_size = true;
  auto tier = open(o);
  const auto names = chains(20, 2);
  const std::span all{names};
  REQUIRE(put_numbers(*tier, all.first(20)));
  const auto packed = tier->stats().held.stored();
  CHECK(packed < 20 * block_bytes * 3 / 4);
  REQUIRE(put(*tier, {names.begin() + 20, names.end()}));
  CHECK(tier->stats().held.stored() == packed + 20 * block_bytes);
  for (std::size_t i = 0; i < 20; ++i) REQUIRE(tier->erase(std::vector{names[i].key}));
  CHECK(tier->stats().held.stored() == 20 * block_bytes);
  CHECK(tier->stats().held.bytes() == 20 * block_bytes);
}
