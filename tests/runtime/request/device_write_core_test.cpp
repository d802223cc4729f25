// What comes from the device to memory, in which order, and that no slot is kept.

#include "runtime/request/device_write_core.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <numeric>

using namespace mooncaf;

namespace {

struct write_world {
  /// A chain of so many blocks is unwritten.
  void unwritten(std::uint32_t blocks, bool due = true) {
    kv_residency::write w;
    w.id = ++chains;
    for (std::uint32_t i = 0; i < blocks; ++i) w.chain.push_back({{w.id, i + 1}, {w.id, i}, i, 20 + i});
    (due ? dirty : later).push_back(w);
  }
  /// The one action since the last call.
  template <class T>
  T only() {
    auto seen = core.take_actions();
    REQUIRE(seen.size() == 1);
    REQUIRE(std::holds_alternative<T>(seen[0]));
    return std::get<T>(seen[0]);
  }
  bool idle() { return core.take_actions().empty(); }
  std::vector<slot_index> slots(std::uint32_t count) {
    std::vector<slot_index> out(count);
    std::iota(out.begin(), out.end(), 50u);
    return out;
  }

  std::deque<kv_residency::write> dirty, later;  ///< `later` is written by a flush alone
  std::vector<std::pair<std::uint64_t, std::uint32_t>> wrote;
  std::uint64_t chains = 0;
  device_write_core core{{[this](bool all) {
                            auto& from = !dirty.empty() || !all ? dirty : later;
                            std::optional<kv_residency::write> out;
                            if (from.empty()) return out;
                            out = from.front();
                            from.pop_front();
                            return out;
                          },
                          [this](std::uint64_t id, std::uint32_t count) { wrote.emplace_back(id, count); }}};
};

using written = std::vector<std::pair<std::uint64_t, std::uint32_t>>;

}  // namespace

TEST_CASE_FIXTURE(write_world,
                  "what memory lacks of a chain is copied, committed and released; then the next one") {
  unwritten(3);
  unwritten(1);
  core.wake();
  CHECK(only<write_action::look>().keys.size() == 3);
  core.looked(1);
  const auto reserve = only<write_action::reserve>();
  CHECK(reserve.count == 2);
  core.wake();  // one chain at a time
  CHECK(idle());
  core.reserved(slots(2));
  const auto copy = only<write_action::copy>();
  CHECK(copy.slots == slots(2));
  CHECK(copy.blocks.at(0).block == 21);
  core.copied(std::vector<std::uint64_t>{7, 8}, false);
  auto end = core.take_actions();
  REQUIRE(end.size() == 3);
  const auto& named = std::get<write_action::commit>(end[0]);
  CHECK(named.owner == reserve.owner);
  REQUIRE(named.items.size() == 2);
  CHECK(named.items[1].slot == 51);
  CHECK(named.items[1].name.depth == 2);
  CHECK(named.items[1].checksum == 8);
  CHECK(std::get<write_action::release>(end[1]).owner == reserve.owner);
  CHECK(std::get<write_action::look>(end[2]).keys.size() == 1);
  CHECK(wrote == written{{1, 3}});
  core.looked(1);  // it is there already
  CHECK(idle());
  CHECK(wrote == written{{1, 3}, {2, 1}});
}

TEST_CASE_FIXTURE(write_world, "a long chain comes in parts") {
  unwritten(200);
  core.wake();
  static_cast<void>(only<write_action::look>());
  core.looked(0);
  CHECK(only<write_action::reserve>().count == 128);
}

TEST_CASE_FIXTURE(write_world, "without room in memory it rests until it is woken") {
  unwritten(2);
  core.wake();
  static_cast<void>(only<write_action::look>());
  SUBCASE("for none of it") { core.looked(0); }
  SUBCASE("for the rest of it: what is there counts, and the next one is tried") {
    unwritten(1);
    core.looked(1);
    static_cast<void>(only<write_action::reserve>());
    core.refused();
    static_cast<void>(only<write_action::look>());
    CHECK(wrote == written{{1, 1}});
    core.looked(0);
  }
  static_cast<void>(only<write_action::reserve>());
  core.refused();
  static_cast<void>(only<write_action::rest>());
  CHECK(wrote.back().second == 0);
  unwritten(1);
  core.wake();
  static_cast<void>(only<write_action::look>());
}

TEST_CASE_FIXTURE(write_world, "a shard that does not answer makes it rest, too") {
  unwritten(2);
  core.wake();
  static_cast<void>(only<write_action::look>());
  core.refused();
  static_cast<void>(only<write_action::rest>());
  CHECK(wrote == written{{1, 0}});
}

TEST_CASE_FIXTURE(write_world, "a flush writes what is not due, too, and says how much came to memory") {
  unwritten(1, false);
  core.wake();
  CHECK(idle());
  core.flush();
  static_cast<void>(only<write_action::look>());
  core.looked(0);
  static_cast<void>(only<write_action::reserve>());
  core.reserved(slots(1));
  static_cast<void>(only<write_action::copy>());
  core.copied(std::vector<std::uint64_t>{7}, false);
  const auto end = core.take_actions();
  CHECK(std::get<write_action::flushed>(end.back()).blocks == 1);
  core.wake();
  CHECK(idle());
}

TEST_CASE_FIXTURE(write_world, "a flush ends where memory has no room") {
  unwritten(1, false);
  core.flush();
  static_cast<void>(only<write_action::look>());
  core.looked(0);
  static_cast<void>(only<write_action::reserve>());
  core.refused();
  CHECK(only<write_action::flushed>().blocks == 0);
}

TEST_CASE_FIXTURE(write_world, "a device that failed gives nothing any more, and a flush ends at once") {
  unwritten(1);
  unwritten(1);
  core.wake();
  static_cast<void>(only<write_action::look>());
  core.looked(0);
  static_cast<void>(only<write_action::reserve>());
  core.reserved(slots(1));
  static_cast<void>(only<write_action::copy>());
  core.copied({}, true);
  static_cast<void>(only<write_action::release>());
  CHECK(wrote == written{{1, 0}});
  core.wake();
  CHECK(idle());
  core.flush();
  CHECK(only<write_action::flushed>().blocks == 0);
}
