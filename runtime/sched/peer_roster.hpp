#pragma once
// The other members of the cluster as one node knows them: which are connected, and which to call when.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/backoff.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// A member that is not connected is called until it is, with back-off.
///
///             call ──fails──► later, with back-off
///              ▲  │                  │
///   member ────┴──┴──────────────────┘        lost (the link broke, or the peer was fenced)
///              └──answers──► connected ─────────────────────────────────────────────► called again
///
/// Of two members one calls first, as two calls that cross are two links, which CAF cannot tell apart: a
/// member that has just joined calls all others; after a loss the one with the smaller id calls.
///
/// A **meeting** is the time from one loss to the next, numbered by each side for itself, ever higher, and
/// told in the greeting: a peer that greets us with a higher number than before had lost us, whether we
/// noticed or not. The answer to such a greeting has a new number, too: a caller that meant another node,
/// which lived at our address before, had not lost us, and learns that we have dropped its state here.
/// @thread  not synchronised
class peer_roster {
 public:
  /// @param seed  of the jitter.
  peer_roster(node_id self, std::uint64_t seed) : self_(self), seed_(seed) {}

  /// These are the members, besides this node.
  /// @param joined  this node has just joined: it calls them all, now. Otherwise new ones call us.
  void set_members(std::span<const node_id> members, bool joined, time_point now);
  /// Greeted, by us or by them. @param meeting  our number of it, if not that of `meeting_with`.
  void met(node_id peer, std::uint64_t meeting = 0);
  /// The link to it broke here, or it was fenced.
  void lost(node_id peer, time_point now);
  /// It had lost us: its greeting, which brought the news, makes a new meeting.
  void was_lost_by(node_id peer, time_point now);
  /// A new meeting with a peer that is connected.
  void begin_anew(node_id id) { find_or_make(id).meeting = ++meetings_; }
  /// The call that `due` ordered failed.
  void missed(node_id peer, time_point now);

  /// Members to call now. Each is named once, until `missed` or `lost`.
  std::vector<node_id> due(time_point now);
  /// Members that are not connected, ascending.
  std::vector<node_id> unreachable() const;
  /// The number of the meeting with this peer, for our greeting. Never the same again after a loss.
  std::uint64_t meeting_with(node_id peer);

 private:
  struct peer {
    bool member = false;
    bool connected = false;
    bool calling = false;
    time_point call_at{};
    std::uint64_t meeting = 0;
    std::optional<backoff> wait;
  };
  peer& find_or_make(node_id id);
  void away(peer& p, node_id id, time_point now);

  node_id self_;
  std::uint64_t seed_;
  std::uint64_t meetings_ = 0;
  std::unordered_map<node_id, peer> peers_;
};

}  // namespace mooncaf
