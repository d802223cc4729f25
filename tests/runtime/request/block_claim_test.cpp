#include "runtime/request/block_claim.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

namespace {

block_key key(std::uint64_t n) { return {n, n}; }

/// Three named blocks and a rest, of which the first two may come from elsewhere.
block_claim three() {
  return {{request_id{7}, 0}, {{key(1), key(0), 0}, {key(2), key(1), 1}, {key(3), key(2), 2}}, 2, 4};
}

}  // namespace

TEST_CASE("a claim pins what is here, reserves the rest, fetches what lies elsewhere, and names what came") {
  auto claim = three();
  const auto what = claim.pin(all_blocks);
  CHECK(what.keys == block_keys_t{key(1), key(2)});
  CHECK(claim.pinned(what.turn, {{10}, {100}, 0}) == 3u);
  claim.reserved(std::vector<slot_index>{11, 12, 13});
  const auto plan = claim.fetch(node_id{5}, 2);
  CHECK(plan.keys.size() == 2);
  CHECK(plan.skip == 1);
  CHECK(plan.slots == std::vector<slot_index>{11});
  CHECK(claim.loading());
  claim.fetched();
  CHECK(!claim.loading());
  const auto items = claim.adopt({{}, {{key(2), 0, 200}}});
  REQUIRE(items.size() == 1);
  CHECK(items[0].slot == 11);
  CHECK(items[0].name.parent == key(1));
  CHECK(items[0].name.depth == 1);
  CHECK(claim.checksums() == std::vector<std::uint64_t>{100, 200, 0});
}

TEST_CASE("the answer to a pin that was given up is stale") {
  auto claim = three();
  const auto first = claim.pin(all_blocks);
  const auto second = claim.pin(0);
  CHECK(!claim.pinned(first.turn, {{10, 11}, {1, 2}, 0}));
  CHECK(!claim.awaits(first.turn));
  CHECK(claim.pinned(second.turn, {{}, {}, 0}) == 4u);
  CHECK(claim.have() == 0);
}

TEST_CASE("a block that is only partly filled has no name, whatever checksums come") {
  auto claim = three();
  claim.pinned(claim.pin(0).turn, {});
  claim.reserved(std::vector<slot_index>{1, 2, 3, 4});
  CHECK(claim.name(2, std::vector<std::uint64_t>{5, 6}).size() == 1);
}
