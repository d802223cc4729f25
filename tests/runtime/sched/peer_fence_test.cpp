// When a peer may write, and when a fence holds.

#include "runtime/sched/peer_fence.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

namespace {

constexpr node_id peer{2}, other{3};

/// Names of the actions since the last call, fences by their tickets.
std::string look(peer_fence& fence) {
  struct name {
    std::string operator()(const peer_action::admit&) const { return "admit"; }
    std::string operator()(const peer_action::part&) const { return "part"; }
    std::string operator()(const peer_action::remove&) const { return "remove"; }
    std::string operator()(const peer_action::close&) const { return "close"; }
    std::string operator()(const peer_action::close_later&) const { return "later"; }
    std::string operator()(const peer_action::fenced& f) const { return std::to_string(f.ticket); }
  };
  std::string out;
  for (const auto& action : fence.take_actions())
    out += (out.empty() ? "" : " ") + std::visit(name{}, action);
  return out;
}

}  // namespace

TEST_CASE("a peer that is back is admitted once nothing of its past can land") {
  peer_fence fence;
  fence.up(peer);
  CHECK(look(fence) == "admit");
  fence.down(peer);
  CHECK(look(fence) == "remove close");
  fence.up(peer);
  CHECK(look(fence).empty());
  fence.closed(peer, false);
  CHECK(look(fence) == "later");
  fence.closed(peer, true);
  CHECK(look(fence) == "admit");
}

TEST_CASE("a peer that left again meanwhile stays out") {
  peer_fence fence;
  fence.up(peer);
  fence.down(peer);
  fence.up(peer);
  fence.down(peer);
  CHECK(look(fence) == "admit remove close remove");
  fence.closed(peer, true);
  CHECK(look(fence).empty());
}

TEST_CASE("fences hold together, once the peer is closed, and name it until it is greeted anew") {
  peer_fence fence;
  fence.up(peer);
  fence.up(other);
  static_cast<void>(look(fence));
  fence.fence(peer, 0, 0, 11);
  CHECK(look(fence) == "part close");
  fence.fence(peer, 0, 0, 12);
  CHECK(look(fence).empty());
  CHECK(fence.fenced() == std::vector{peer});
  fence.closed(peer, true);
  CHECK(look(fence) == "11 12");
  CHECK(fence.fenced() == std::vector{peer});
  fence.up(peer);
  CHECK(look(fence) == "admit");
  CHECK(fence.fenced().empty());
}

TEST_CASE("a fence that came since will do: the peer that is back is not shut out") {
  peer_fence fence;
  fence.up(peer);
  static_cast<void>(look(fence));
  fence.fence(peer, 3, 4, 11);
  CHECK(look(fence) == "11");
  CHECK(fence.fenced().empty());
}

TEST_CASE("a fence of a peer that has left waits for the closing at work, and names nobody") {
  peer_fence fence;
  fence.up(peer);
  fence.down(peer);
  static_cast<void>(look(fence));
  fence.fence(peer, 0, 0, 11);
  CHECK(look(fence).empty());
  CHECK(fence.fenced().empty());
  fence.closed(peer, true);
  CHECK(look(fence) == "11");
}
