#include "runtime/sched/min_tree.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace mooncaf;

TEST_CASE("an empty tree has no best") {
  min_tree tree;
  CHECK(tree.best(0, [](std::size_t) { return true; }) == min_tree::npos);
  tree.resize(3);
  CHECK(tree.best(0, [](std::size_t) { return true; }) == min_tree::npos);
  CHECK(tree.min() == min_tree::absent);
}

TEST_CASE("keys below the floor are equal, and the lowest position wins") {
  min_tree tree;
  tree.resize(4);
  tree.set(0, 50);
  tree.set(1, 7);
  tree.set(2, 3);
  tree.set(3, 7);
  const auto any = [](std::size_t) { return true; };
  CHECK(tree.best(0, any) == 2);
  CHECK(tree.best(10, any) == 1);
  CHECK(tree.best(60, any) == 0);
  CHECK(tree.best(10, [](std::size_t i) { return i != 1 && i != 2; }) == 3);
  CHECK(tree.best(0, any, 3) == min_tree::npos);
}

TEST_CASE("the best is what a scan finds, whatever changed before") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    min_tree tree;
    std::size_t size = 1 + random() % 70;
    tree.resize(size);
    std::vector<min_tree::key> keys(size, min_tree::absent);
    for (int step = 0; step < 500; ++step) {
      if (random() % 50 == 0) {
        size = 1 + random() % 70;
        tree.resize(size);
        keys.resize(size, min_tree::absent);
      }
      const auto at = random() % size;
      keys[at] = random() % 8 == 0 ? min_tree::absent : static_cast<min_tree::key>(random() % 30);
      tree.set(at, keys[at]);
      const auto floor = static_cast<min_tree::key>(random() % 30);
      const auto mask = random();
      const auto wanted = [&](std::size_t i) { return (mask >> (i % 64) & 1) != 0; };
      auto best = min_tree::npos;
      for (std::size_t i = 0; i < size; ++i) {
        if (keys[i] == min_tree::absent || !wanted(i)) continue;
        if (best == min_tree::npos || std::max(keys[i], floor) < std::max(keys[best], floor)) best = i;
      }
      REQUIRE(tree.best(floor, wanted) == best);
    }
  }
}
