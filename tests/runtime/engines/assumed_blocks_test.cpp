// An engine without news is taken to hold what it computed last.

#include "runtime/engines/assumed_blocks.hpp"

#include <doctest/doctest.h>

#include "recorded.hpp"
#include "runtime/sched/block_hash.hpp"

using namespace mooncaf;

namespace {

std::vector<block_key> keys_of(std::int32_t first, std::size_t blocks) {
  return block_keys(numbers(first, blocks * 4), 4, test_root);
}

}  // namespace

TEST_CASE("the oldest prompts are let go first, each from its end") {
  assumed_blocks assumed{10};
  held_blocks held;
  const auto a = keys_of(0, 6), b = keys_of(1000, 6), c = keys_of(2000, 3);
  assumed.used(a, test_root, held);
  assumed.used(b, test_root, held);
  CHECK(held.size() == 10);
  CHECK(held.leading(b) == 6);
  CHECK(held.leading(a) == 4);
  assumed.used(a, test_root, held);  // computed anew, as it was used again
  CHECK(held.leading(a) == 6);
  CHECK(held.leading(b) == 4);
  assumed.used(c, test_root, held);
  CHECK(held.leading(c) == 3);
  CHECK(held.leading(a) == 6);
  CHECK(held.leading(b) == 1);
  assumed.used(keys_of(3000, 40), test_root, held);
  CHECK(held.size() == 10);
  CHECK(held.leading(keys_of(3000, 40)) == 10);
  assumed.forget(held);
  CHECK(held.size() == 0);
}
