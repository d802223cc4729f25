// Memory of a host device's weights.

#include "gpu/host/weight_arena.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

using namespace mooncaf;

TEST_CASE("parts of a chunk are zeroed, begin with a cache line, and do not touch each other") {
  weight_arena arena;
  std::vector<std::pair<std::shared_ptr<std::byte>, std::size_t>> parts;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{64}, std::size_t{100'000}, std::size_t{40} << 20, std::size_t{0},
        std::size_t{31} << 20, std::size_t{2} << 20}) {
    auto taken = arena.take(bytes);
    REQUIRE(taken);
    CHECK(reinterpret_cast<std::uintptr_t>(taken->get()) % 64 == 0);
    const std::span all{taken->get(), bytes};
    CHECK(std::ranges::all_of(all, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(taken->get(), static_cast<int>(parts.size() + 1), bytes);
    parts.emplace_back(*taken, bytes);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::span all{parts[i].first.get(), parts[i].second};
    CHECK(std::ranges::all_of(all, [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
}

TEST_CASE("a weight outlives the arena that it came from") {
  std::optional<weight_arena> arena{std::in_place};
  const auto taken = arena->take(1000);
  REQUIRE(taken);
  arena.reset();
  std::memset(taken->get(), 7, 1000);
  CHECK(taken->get()[999] == std::byte{7});
}

TEST_CASE("more than there are addresses for is an error, and the arena goes on") {
  weight_arena arena;
  const auto taken = arena.take(std::size_t{1} << 60);
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == ec::out_of_space);
  CHECK(arena.take(64));
}
