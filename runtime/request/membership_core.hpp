#pragma once
// What a node decides about the cluster that it belongs to: when it looks for the conductor, when it calls
// which member, when a peer is up or down.
//
//   dial(conductor) ─► greet ─► join ─► members ─► dial each ─► greet ─► meet
//        ▲                       ▲                    ▲                   │ link broke, peer fenced, or
//        │                       └── dropped though   └── with back-off,  │ the peer had lost this node
//        │ it was the conductor's    it lives             while a member  ▼
//        └─────────────────────────────────────────────────────────────  part

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/backoff.hpp"
#include "runtime/base/host_port.hpp"
#include "runtime/base/result.hpp"
#include "runtime/request/leadership_core.hpp"
#include "runtime/request/messages.hpp"
#include "runtime/sched/peer_roster.hpp"

namespace mooncaf {

/// A node as it introduced itself. The actor's own are `node_info`; it gets back what it gave.
using introduction_ptr = std::shared_ptr<const introduction>;
/// Which greeting: chosen by the core, used once.
using greeting_ticket = std::uint64_t;

namespace membership_action {
/// Open a link to this control port; tell `reached` or `missed`.
struct dial {
  greeting_ticket greeting = 0;
  host_port where;
};
/// A conductor of the list was found, at this node, and `join` follows: take from its introduction what is of use here.
struct found {
  introduction_ptr conductor;
};
/// Join at the conductor of this node; tell `joined` or `not_joined`.
struct join {
  introduction_ptr conductor;
};
/// Local actors ask the conductor of this node from now on; null: none. @param term  of the leader.
struct follow {
  introduction_ptr conductor;
  std::uint64_t term = 0;
};
/// Watch the link to this peer, and tell local actors that it is up.
struct meet {
  introduction_ptr peer;
};
/// Tell local actors that this peer is down.
struct part {
  introduction_ptr peer;
  std::string why;
};
/// Send messages of this version from now on: a peer came that reads no later one, or the last such went.
struct speak {
  std::uint32_t version = 0;
};
/// Log a problem that is new.
struct complain {
  std::string about;
  std::string problem;
};
/// This node can never be a member: end it.
struct give_up {
  error why;
};
}  // namespace membership_action

/// Orders to the actor, in order.
using membership_actions = std::vector<
    std::variant<membership_action::dial, membership_action::found, membership_action::join,
                 membership_action::follow, membership_action::meet, membership_action::part,
                 membership_action::speak, membership_action::complain, membership_action::give_up>>;

/// The conductors of a cluster, the same list at every node.
struct conductor_seats {
  std::vector<host_port> at;          ///< where they answer
  std::optional<std::uint32_t> here;  ///< place of the one in this process
};

/// With several conductors a node is a member at each of them, and local actors ask the one that leads. Links
/// with conductors are opened by the others, those between two conductors by the later of the list.
/// @thread  Owned by the node; not synchronised.
class membership_core {
 public:
  /// @param self   its address may become known until the first `tick`, no later.
  /// @param seats  none: this node shall have no conductor.
  /// @param voter  that obeys one of them.
  membership_core(introduction_ptr self, conductor_seats seats, leadership_voter voter);

  /// The actions that the calls so far led to; each is given once.
  membership_actions take_actions() { return std::exchange(actions_, {}); }

  // ---- events ----
  /// To be called several times a second.
  void tick(time_point now);
  /// The link that this greeting needs is open. @returns this node's number for the meeting, to be told with
  /// its introduction; tell `answered` or `refused`.
  std::uint64_t reached(greeting_ticket greeting);
  /// The link could not be opened.
  void missed(greeting_ticket greeting, const error& why, time_point now);
  /// The peer answered with an error, or not in time.
  void refused(greeting_ticket greeting, const error& why, time_point now);
  /// @param meeting   the peer's number for it. @param conducts  the conductor is there.
  void answered(greeting_ticket greeting, const introduction_ptr& peer, std::uint64_t meeting, bool conducts,
                time_point now);
  /// A peer greets this node. @param meeting  the peer's number for it. @returns this node's number, to be
  /// told with its introduction. @error incompatible: the peer has another model.
  result<std::uint64_t> greeted(const introduction_ptr& peer, std::uint64_t meeting, time_point now);
  /// @param conductor  its node. @param others  the other members.
  void joined(node_id conductor, const std::vector<introduction>& others, time_point now);
  void not_joined(node_id conductor, const error& why, time_point now);
  /// A conductor's answer to a report. @param others  as `how` has news.
  void stands(node_id conductor, const standing& how, const std::vector<introduction>& others,
              time_point now);
  /// A conductor wants to be obeyed.
  lead_vote claimed(const lead_claim& claim, time_point now);
  /// The link to a peer broke.
  void lost(node_id peer, const std::string& why, time_point now);
  /// Peers that the data plane had shut out when it was `asked` are greeted anew: only then do both sides
  /// agree on what may still be written.
  void fenced(std::span<const node_id> peers, time_point asked, time_point now);
  /// This node was told to stop: its reports say so from now on.
  void drain();
  /// Forgets everybody; nothing is called after it.
  void close();

  /// What a report of this node says of its membership; the rest is for others to fill in.
  node_report report() const;
  /// Where this node is a member and reports to, with the version of the list of members that it has from there.
  std::vector<std::pair<introduction_ptr, std::uint64_t>> conductors() const;

 private:
  /// A conductor of the list.
  struct post {
    host_port where;
    introduction_ptr asked;   ///< its node, while it is asked to let this node join; null: it is not
    introduction_ptr member;  ///< its node, while this node is a member there; null: it is not
    node_id node;             ///< where it was last
    bool joining = false;     ///< it is looked for, or its answer is awaited
    backoff wait;
    time_point join_at{};
    standing how;               ///< as it said last
    std::uint64_t version = 0;  ///< of the list of members
    std::vector<introduction> others;
  };
  struct greeting {
    node_id whom;                          ///< who should answer; none: whoever does
    std::string about;                     ///< for complaints
    std::optional<std::size_t> to_join{};  ///< the post
    std::uint64_t meeting = 0;             ///< this node's number
  };
  struct acquaintance {
    introduction_ptr peer;
    std::uint64_t meeting = 0;  ///< the peer's number
    time_point since;
  };

  void look_for_conductors(time_point now);
  /// Whether this node is the one to open a link with that conductor.
  bool looks_for(std::size_t place) const;
  /// Whether a member is called as its link is missing, and not by `look_for_conductors`.
  bool calls(node_id member) const;
  post* post_of(node_id conductor);
  void call_members(time_point now);
  void greet(const host_port& where, greeting whom);
  greeting take(greeting_ticket ticket);
  void join(post& at, const introduction_ptr& conductor);
  /// @returns whether `why` leaves nothing to wait for.
  bool gives_up(const error& why);
  /// The conductor is looked for anew, later.
  void look_again(post& at, const error& why, time_point now);
  /// Local actors are to ask the leader, or any conductor while none is known.
  void follow();
  /// @param joined  this node has just joined them.
  void learn(bool joined, time_point now);
  /// A conductor opened the link: this node joins there.
  void meet_conductor(const introduction_ptr& peer);
  /// @returns whether the peer was known here and had lost this node, so that local actors were told of both.
  bool meet(const introduction_ptr& peer, std::uint64_t meeting, time_point now);
  void part(node_id peer, const std::string& why);
  /// The peers are other ones than before.
  void agree_on_version();
  void complain(const std::string& about, const error& why);

  introduction_ptr self_;
  std::optional<std::uint32_t> here_;  ///< the post in this process
  leadership_voter voter_;
  std::vector<post> posts_;
  introduction_ptr followed_;  ///< the conductor's node that local actors ask; null: none
  std::uint64_t followed_term_ = 0;
  bool draining_ = false;
  std::uint32_t speaks_;  ///< the newest version that this node and all its peers read
  peer_roster roster_;
  std::unordered_map<node_id, introduction> members_;        ///< names and addresses, as conductors gave them
  std::unordered_map<node_id, acquaintance> peers_;          ///< connected
  std::unordered_map<greeting_ticket, greeting> greetings_;  ///< under way
  greeting_ticket next_greeting_ = 1;
  std::unordered_map<std::string, std::string> complaints_;  ///< the latest, by subject
  membership_actions actions_;
};

}  // namespace mooncaf
