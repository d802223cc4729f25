#pragma once
// Which peers may write this node's memory, and when one that may no longer has really stopped.
//
//            up                          down, fence                     no byte can land
//   absent ──────► admitted ─────────────────────────────► shutting ─────────────────────► absent
//     ▲                                (an up that comes now │  ▲ │
//     │                                 waits for the end)   │  └─┘ cannot be said yet: asked again later
//     └── fences answered, and admitted if it was up again ◄─┘

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/ids.hpp"

namespace mooncaf {

namespace peer_action {
/// Let it write here, and read from it.
struct admit {
  node_id peer;
};
/// Begin nothing more with it.
struct part {
  node_id peer;
};
/// The peer is gone: transfers under way with it fail, and all that was learned of it is forgotten.
struct remove {
  node_id peer;
};
/// Shut it out; tell `closed` when that was done, or could not be.
struct close {
  node_id peer;
};
/// The same a while from now.
struct close_later {
  node_id peer;
};
/// The fence with this ticket holds.
struct fenced {
  std::uint64_t ticket = 0;
};
}  // namespace peer_action

/// Actions that the messenger has to take, in order.
using peer_actions =
    std::vector<std::variant<peer_action::admit, peer_action::part, peer_action::remove, peer_action::close,
                             peer_action::close_later, peer_action::fenced>>;

/// A peer that is shut out has slices under way that cannot be called back: memory that it was let write must
/// not be given to another request before they cannot land any more.
/// @thread  Owned by the messenger; not synchronised.
class peer_fence {
 public:
  /// Actions to take after the calls so far; each is given once.
  peer_actions take_actions() { return std::exchange(actions_, {}); }

  /// The peer can be reached from now on.
  void up(node_id peer);
  /// The peer cannot be reached. Transfers that it still has under way must not land among later ones.
  void down(node_id peer);
  /// Bytes that the peer was let write after `then` shut-outs must not land. It stays out until it is `up`
  /// anew.
  /// @param now  its shut-outs so far: more than `then` keep such bytes out already. @param ticket  for
  /// `fenced`.
  void fence(node_id peer, std::uint64_t then, std::uint64_t now, std::uint64_t ticket);
  /// @param shut  none of its bytes can land any more; false: it maps our memory, and neither stopped nor
  /// died.
  void closed(node_id peer, bool shut);

  /// Peers that a fence shut out while they were there, and that have not been `up` since.
  const std::vector<node_id>& fenced() const noexcept { return fenced_; }

 private:
  struct shutting {
    bool up_again = false;
    std::vector<std::uint64_t> fences;  ///< tickets
  };

  std::unordered_map<node_id, shutting> shutting_;
  std::vector<node_id> fenced_;
  peer_actions actions_;
};

}  // namespace mooncaf
