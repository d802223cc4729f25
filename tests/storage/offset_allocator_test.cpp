#include "storage/offset_allocator.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

#include "runtime/base/units.hpp"

using namespace mooncaf;

TEST_CASE("parts never overlap, stay inside, and all of it comes back, whatever the order") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const std::uint64_t total = 64 * (1 + random() % 4000);
    offset_allocator space{total};
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> held;  // offset -> bytes, handle
    for (int step = 0; step < 2000; ++step) {
      if (held.empty() || random() % 5 < 3) {
        const auto bytes = 1 + random() % (random() % 4 == 0 ? total : total / 50 + 1);
        const auto got = space.allocate(bytes);
        if (!got) continue;
        const auto next = held.lower_bound(got->offset);
        REQUIRE(got->offset + bytes <= total);
        if (next != held.end()) REQUIRE(got->offset + bytes <= next->first);
        if (next != held.begin())
          REQUIRE(std::prev(next)->first + std::prev(next)->second.first <= got->offset);
        held[got->offset] = {bytes, got->handle};
      } else {
        auto gone = held.begin();
        std::advance(gone, static_cast<std::ptrdiff_t>(random() % held.size()));
        space.release(gone->second.second);
        held.erase(gone);
      }
      if (step % 100 == 0) REQUIRE(space.consistent());
    }
    for (const auto& [offset, part] : held) space.release(part.second);
    REQUIRE(space.consistent());
    REQUIRE(space.free_bytes() == total / 64 * 64);
    const auto whole = space.allocate(total);  // one run again
    REQUIRE(whole);
    CHECK(whole->offset == 0);
  }
}

TEST_CASE("a full span says no, and nothing is not given out") {
  offset_allocator space{1000};
  CHECK(space.total_bytes() == 960);
  CHECK_FALSE(space.allocate(0));
  CHECK_FALSE(space.allocate(961));
  const auto all = space.allocate(960);
  REQUIRE(all);
  CHECK_FALSE(space.allocate(1));
  space.release(all->handle);
  CHECK(space.allocate(960));
  CHECK_FALSE(offset_allocator{63}.allocate(1));
}

// What the sizes of KV objects come to: pages of one model, of several, and, which is harder, anything from 4
// KiB to 4 MiB with room for some 500 of them.
TEST_CASE(
    "under churn nine tenths of the span hold objects when one is refused, on average; at worst, and of any "
    "size, four fifths") {
  const std::vector<std::vector<std::uint64_t>> workloads{
      {160 * KiB}, {4 * KiB, 160 * KiB, 1 * MiB}, {1'474'560, 163'840, 36'864}, {}};
  for (std::size_t w = 0; w < workloads.size(); ++w) {
    CAPTURE(w);
    std::mt19937_64 random{7 + w};
    const std::uint64_t total = 1 * GiB;
    offset_allocator space{total};
    std::vector<std::pair<std::uint32_t, std::uint64_t>> held;
    std::uint64_t used = 0;
    double least = 1, sum = 0;
    int refusals = 0;
    for (int step = 0; step < 60'000; ++step) {
      const auto& sizes = workloads[w];
      const auto bytes = sizes.empty() ? 4 * KiB + random() % (4 * MiB) : sizes[random() % sizes.size()];
      auto got = space.allocate(bytes);
      if (!got) {
        const auto share = static_cast<double>(used) / static_cast<double>(total);
        least = std::min(least, share);
        sum += share;
        ++refusals;
        while (!got) {  // as eviction does: one after the other, anywhere
          const auto i = random() % held.size();
          space.release(held[i].first);
          used -= held[i].second;
          held[i] = held.back();
          held.pop_back();
          got = space.allocate(bytes);
        }
      }
      used += bytes;
      held.push_back({got->handle, bytes});
    }
    MESSAGE("workload ", w, ": least utilisation at a refusal ", least);
    CHECK(least >= (workloads[w].empty() ? 0.8 : 0.95));
    CHECK(sum / refusals >= 0.92);
  }
}

TEST_CASE("a span is filled again as somebody else had divided it, in the order of the places") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const std::uint64_t total = 64 * (100 + random() % 4000);
    offset_allocator first{total}, second{total};
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> held;
    for (int step = 0; step < 500; ++step) {
      if (held.empty() || random() % 5 < 3) {
        const auto bytes = 1 + random() % (total / 20);
        if (const auto got = first.allocate(bytes)) held[got->offset] = {bytes, got->handle};
      } else {
        auto gone = held.begin();
        std::advance(gone, static_cast<std::ptrdiff_t>(random() % held.size()));
        first.release(gone->second.second);
        held.erase(gone);
      }
    }
    for (auto& [offset, part] : held) {
      const auto got = second.claim(offset, part.first);
      REQUIRE(got);
      CHECK(got->offset == offset);
      part.second = got->handle;
      if (offset > 0) REQUIRE_FALSE(second.claim(offset - 64, 64));  // behind what is taken only
    }
    REQUIRE(second.consistent());
    CHECK(second.free_bytes() == first.free_bytes());
    for (const auto& [offset, part] : held) second.release(part.second);
    CHECK(second.allocate(total));
  }
  offset_allocator space{1024};
  CHECK_FALSE(space.claim(0, 0));
  CHECK_FALSE(space.claim(32, 64));
  CHECK_FALSE(space.claim(1024, 1));
  CHECK_FALSE(space.claim(960, 65));
  CHECK_FALSE(space.claim(0, ~std::uint64_t{0}));
  CHECK(space.claim(960, 64));
}
