// One heat in all tiers: what goes down is as cold there as it was above, and what is above already is the
// first that a tier below can do without.

#include <doctest/doctest.h>

#include "tests/storage/tiered_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// One block after the other of prompts that nobody wants again, until `enough`.
template <class Enough>
void push_until(tiered_fixture& f, Enough&& enough) {
  for (int i = 0; !enough(); ++i) {
    REQUIRE(i < 200);
    f.write(owner_id{500}, prompt({7000 + i}));
    f.store.release_all(owner_id{500});
    f.drain();
  }
}

}  // namespace

TEST_CASE(
    "what memory has, too, leaves a full SSD before what is nowhere else, and comes back when it must") {
  tiered_fixture f(16, options_for(write_policy::write_back, 24));
  const auto kept = prompt({1, 2}), read = prompt({3, 4});
  f.write(alice, kept);
  f.write(alice, read);
  f.store.release_all(alice);
  push_until(f,
             [&] { return f.store.match(keys_of(kept)).ssd == 2 && f.store.match(keys_of(read)).ssd == 2; });
  // Read again, so that by the time of its last use it would stay longest.
  REQUIRE(f.store.pin(keys_of(read), bob, later));
  f.drain();
  REQUIRE(f.store.match(keys_of(read)).dram == 2);
  push_until(f, [&] { return f.store.ssd_stats().ssd_evictions >= 2; });
  CHECK(f.store.match(keys_of(kept)).ssd == 2);
  for (const auto& n : kept) CHECK(f.disk.blocks.contains(n.key));
  for (const auto& n : read) CHECK_FALSE(f.disk.blocks.contains(n.key));
  f.check();
  // When it leaves memory it is written once more.
  f.store.release_all(bob);
  push_until(f, [&] { return f.store.match(keys_of(read)).dram == 0; });
  CHECK(f.store.match(keys_of(read)).ssd == 2);
  f.check();
}

TEST_CASE("where blocks are written as they are made, the SSD keeps what was used last, in memory or not") {
  tiered_fixture f(16, options_for(write_policy::write_through, 24));
  const auto old = prompt({1, 2}), young = prompt({3, 4});
  f.write(alice, old);
  f.write(bob, young);
  f.drain();
  f.store.release_all(alice);  // the young ones are in memory, and stay
  push_until(f, [&] { return f.store.ssd_stats().ssd_evictions >= 2; });
  CHECK(f.store.match(keys_of(old)).total() == 0);
  for (const auto& n : young) CHECK(f.disk.blocks.contains(n.key));
  f.check();
}

TEST_CASE(
    "of about equally cold blocks a full SSD gives up those that other nodes keep, and never a last one") {
  for (const auto policy : {write_policy::write_back, write_policy::write_through}) {
    CAPTURE(to_string(policy));
    tiered_fixture f(16, options_for(policy, 24));
    const auto single = prompt({1, 1, 1, 1}), doubled = prompt({2, 2, 2, 2});
    CHECK(f.store.ask_for_copies().empty());  // there is room
    f.write(alice, single);
    f.store.release_all(alice);
    f.drain();
    f.write(alice, doubled);
    f.store.release_all(alice);
    f.drain();
    const auto answer = [&] {
      auto asked = f.store.ask_for_copies();
      std::vector<block_key> kept;
      for (std::size_t i = 0; i < asked.size(); i += 2)
        if (asked[i] == doubled.back().key) kept.push_back(asked[i]);
      f.store.copies_are(asked, kept);
      return !kept.empty();
    };
    push_until(f, [&] { return answer(); });
    CHECK(f.store.ssd_stats().ssd_evictions == 0);
    CHECK(f.store.ssd_stats().copies == 4);
    // Younger than the others, and yet they make room; no hole is left at any time.
    push_until(f, [&] {
      f.check();
      return f.store.ssd_stats().copies_dropped >= 4;
    });
    CHECK(f.store.match(keys_of(single)).total() == 4);
    CHECK(f.store.match(keys_of(doubled)).total() == 0);
    CHECK(f.store.ssd_stats().last_copies_kept == 4);
    CHECK(f.store.ssd_stats().copies == 0);
    f.check();
  }
}

TEST_CASE(
    "what a device has that gives it back leaves a full SSD first, and then the device is alone with it") {
  for (const bool gives_back : {false, true}) {
    CAPTURE(gives_back);
    auto options = options_for(write_policy::write_back, 24);
    options.device_gives_back = gives_back;
    tiered_fixture f(16, options);
    const auto below = prompt({1, 2}), above = prompt({3, 4});
    f.write(alice, below);
    f.write(alice, above);
    f.store.release_all(alice);
    auto& device = f.store.tree().open(storage_tier::device);
    for (const auto& n : above) device.set_written(device.insert(n.key, n.parent, n.depth, 0), true);
    CHECK(device.unwritten() == 0);
    push_until(f, [&] { return f.store.match(keys_of(gives_back ? above : below)).total() == 0; });
    f.check();
    CHECK(f.store.match(keys_of(gives_back ? below : above)).total() == 2);
    CHECK(device.unwritten() == (gives_back ? 2 : 0));
    // It has left the device, too: what is on the SSD is no copy any more.
    for (const auto& n : above) device.erase(device.find(n.key));
    f.check();
  }
}

TEST_CASE("a block that comes from the tier above is as cold as it was there") {
  tiered_fixture f(4, {});
  const auto first = prompt({1}), second = prompt({2}), cold = prompt({3});
  f.write(alice, first);
  auto& device = f.store.tree().open(storage_tier::device);
  device.insert(cold[0].key, cold[0].parent, 0, f.store.tree().next_time());
  f.write(alice, second);
  const auto slot = f.store.reserve(alice, 1, later);
  REQUIRE(slot);
  REQUIRE(f.store.commit(alice, slot->front().index, cold[0], 1));
  f.store.release_all(alice);
  REQUIRE(f.store.pin(keys_of(first), bob, later));  // wanted since
  f.store.release_all(bob);
  const auto left_after = [&](std::size_t slots) {
    REQUIRE(f.store.reserve(alice, slots, later));
    const auto here = [&](const auto& p) { return f.store.match(keys_of(p)).dram == 1; };
    return std::array{here(first), here(second), here(cold)};
  };
  CHECK(left_after(2) == std::array{true, true, false});
  CHECK(left_after(1) == std::array{true, false, false});
  f.check();
}
