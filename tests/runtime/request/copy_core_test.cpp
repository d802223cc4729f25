// What a pool keeper copies, and that it holds nothing when it is done.

#include "runtime/request/copy_core.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

namespace {

constexpr node_id copier{1}, copied_from{2}, other{3};

struct copy_world {
  keep_order order(node_id from, std::uint32_t blocks) {
    keep_order out{from, {}};
    for (std::uint32_t i = 0; i < blocks; ++i) out.blocks.push_back({{{++keys, 1}, {keys - 1, 1}, i}});
    return out;
  }
  /// The one action since the last call.
  template <class T>
  T only() {
    auto seen = core.take_actions();
    REQUIRE(seen.size() == 1);
    REQUIRE(std::holds_alternative<T>(seen[0]));
    return std::get<T>(seen[0]);
  }

  copy_core core{copier};
  std::uint64_t keys = 0;
};

}  // namespace

TEST_CASE_FIXTURE(copy_world, "what is not copier is fetched, committed and released") {
  core.peer_up(copied_from);
  const auto wanted = order(copied_from, 3);
  core.take(wanted);
  const auto pin = only<copy_action::pin>();
  CHECK(pin.what.keys ==
        block_keys_t{wanted.blocks[0].name.key, wanted.blocks[1].name.key, wanted.blocks[2].name.key});
  CHECK(core.at_work() == pin.owner);
  core.pinned(pin.owner, pin.what.turn, {{7}, {70}, 0});
  CHECK(only<copy_action::reserve>().count == 2);
  core.reserved(pin.owner, std::vector<slot_index>{8, 9});
  const auto fetch = only<copy_action::fetch>();
  CHECK(fetch.what.source == copied_from);
  CHECK(fetch.what.skip == 1);
  CHECK(fetch.what.slots == std::vector<slot_index>{8, 9});
  core.fetched(pin.owner, {{}, {{wanted.blocks[1].name.key, 0, 80}}});  // the last could not be had
  const auto end = core.take_actions();
  REQUIRE(end.size() == 2);
  const auto& items = std::get<copy_action::commit>(end[0]).items;
  REQUIRE(items.size() == 1);
  CHECK(items[0].slot == 8);
  CHECK(items[0].checksum == 80);
  CHECK(std::get<copy_action::release>(end[1]).owner == pin.owner);
  CHECK(!core.at_work());
}

TEST_CASE_FIXTURE(copy_world, "one order at a time; a refusal ends it, and the next begins") {
  core.peer_up(copied_from);
  core.take(order(copied_from, 1));
  core.take(order(copied_from, 1));
  const auto first = only<copy_action::pin>();
  core.pinned(first.owner, first.what.turn, {});
  static_cast<void>(only<copy_action::reserve>());
  core.refused(first.owner);
  const auto next = core.take_actions();
  REQUIRE(next.size() == 2);
  CHECK(std::get<copy_action::release>(next[0]).owner == first.owner);
  const auto second = std::get<copy_action::pin>(next[1]);
  CHECK(second.owner != first.owner);
  core.reserved(first.owner, std::vector<slot_index>{1});  // too late: nobody's business
  CHECK(core.take_actions().empty());
  core.pinned(second.owner, second.what.turn, {{4}, {40}, 0});  // all of it is copier
  CHECK(only<copy_action::release>().owner == second.owner);
}

TEST_CASE_FIXTURE(copy_world, "orders wait for their copied_from to come, and go with it") {
  core.take(order(other, 1));
  core.take(order(copied_from, 1));
  CHECK(core.take_actions().empty());
  core.peer_up(copied_from);
  const auto pin = only<copy_action::pin>();
  core.peer_down(other);
  core.peer_up(other);
  core.refused(pin.owner);
  CHECK(only<copy_action::release>().owner == pin.owner);
  CHECK(!core.at_work());
}

TEST_CASE_FIXTURE(copy_world, "long orders are read in parts, and no more are kept than a bound") {
  core.take(order(copied_from, 33));
  core.peer_up(copied_from);
  const auto first = only<copy_action::pin>();
  CHECK(first.what.keys.size() == 32);
  core.refused(first.owner);
  auto next = core.take_actions();
  CHECK(std::get<copy_action::pin>(next.at(1)).what.keys.size() == 1);
  for (int i = 0; i < 5000; ++i) core.take(order(copied_from, 1));
  std::size_t taken = 0;
  for (auto owner = core.at_work(); owner; owner = core.at_work()) {
    core.refused(*owner);
    ++taken;
  }
  CHECK(taken == 1 + 4096);
}
