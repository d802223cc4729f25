// Whom a node calls and when, and how two nodes agree on whether they have lost each other.

#include "runtime/sched/peer_roster.hpp"

#include <doctest/doctest.h>

#include <array>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr time_point roster_start{1000s};
constexpr node_id small{1}, self{5}, large{9};
constexpr std::array both{small, large};
using node_ids = std::vector<node_id>;

/// How often a peer that never answers is called in this time, looked at every 50 ms.
int calls(peer_roster& roster, node_id peer, time_point from, duration during) {
  int count = 0;
  for (auto now = from; now < from + during; now += 50ms) {
    for (const auto id : roster.due(now)) {
      count += id == peer;
      roster.missed(id, now);
    }
  }
  return count;
}

}  // namespace

TEST_CASE("who joins calls everybody at once, and everybody else waits for the call") {
  peer_roster joiner{self, 1}, member{self, 1};
  joiner.set_members(both, true, roster_start);
  member.set_members(both, false, roster_start);
  CHECK(joiner.due(roster_start) == node_ids{small, large});
  CHECK(joiner.due(roster_start + 1h).empty());  // the calls are under way
  CHECK(member.due(roster_start).empty());
  CHECK(member.due(roster_start + 1s).empty());
  // Nobody called: both joined at once, at different conductors, or something is wrong.
  CHECK(member.due(roster_start + 2s) == node_ids{large});
  CHECK(member.due(roster_start + 10s) == node_ids{small});
  CHECK(joiner.unreachable() == node_ids{small, large});
  joiner.met(small);
  CHECK(joiner.unreachable() == node_ids{large});
}

TEST_CASE("a lost member is called until it answers, with back-off, and at once by the smaller of the two") {
  peer_roster roster{self, 7};
  roster.set_members(both, true, roster_start);
  for (const auto id : roster.due(roster_start)) roster.met(id);
  roster.lost(small, roster_start);
  roster.lost(large, roster_start);
  CHECK(roster.due(roster_start + 150ms) == node_ids{large});
  roster.missed(large, roster_start + 150ms);
  CHECK(roster.unreachable() == node_ids{small, large});
  const auto often = calls(roster, large, roster_start + 150ms, 60s);
  CHECK(often >= 25);
  CHECK(often <= 70);
  CHECK(calls(roster, small, roster_start + 61s, 60s) >= 25);
  roster.met(small);
  roster.met(large);
  CHECK(roster.due(roster_start + 1h).empty());
  CHECK(roster.unreachable().empty());
}

TEST_CASE("who is no member any more is not called, and does not count as unreachable") {
  peer_roster roster{self, 1};
  roster.set_members(both, true, roster_start);
  roster.met(small);
  roster.set_members(std::array{small}, false, roster_start);
  CHECK(roster.unreachable().empty());
  CHECK(roster.due(roster_start + 1h).empty());
  roster.set_members({}, false, roster_start);
  roster.lost(small, roster_start);
  CHECK(roster.due(roster_start + 1h).empty());
}

TEST_CASE("a loss begins a new meeting here, whoever else noticed it") {
  peer_roster roster{self, 1};
  roster.set_members(both, true, roster_start);
  const auto first = roster.meeting_with(small);
  CHECK(roster.meeting_with(large) != first);
  roster.met(small);
  CHECK(roster.meeting_with(small) == first);
  // It greets us anew, as it had lost us: we have not lost it.
  roster.was_lost_by(small, roster_start);
  roster.met(small);
  CHECK(roster.meeting_with(small) == first);
  roster.lost(small, roster_start);
  const auto second = roster.meeting_with(small);
  CHECK(second != first);
  // Gone and forgotten, and back under the same id: still another number.
  roster.met(small);
  roster.set_members({}, false, roster_start);
  roster.lost(small, roster_start);
  CHECK(roster.meeting_with(small) != second);
  CHECK(roster.meeting_with(small) != first);
}
