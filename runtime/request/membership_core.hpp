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
/// The conductor of this node was found, which `join` follows: take from its introduction what is of use
/// here.
struct found {
  introduction_ptr conductor;
};
/// Join at the conductor of this node; tell `joined` or `not_joined`.
struct join {
  introduction_ptr conductor;
};
/// Local actors follow the conductor of this node from now on; null: none.
struct follow {
  introduction_ptr conductor;
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
using membership_actions =
    std::vector<std::variant<membership_action::dial, membership_action::found, membership_action::join,
                             membership_action::follow, membership_action::meet, membership_action::part,
                             membership_action::complain, membership_action::give_up>>;

/// @thread  Owned by the node; not synchronised.
class membership_core {
 public:
  /// @param self       its address may become known until the first `tick`, no later.
  /// @param conducts   the conductor is here.
  /// @param conductor  else: where it answers, or nothing if this node shall have none.
  membership_core(introduction_ptr self, bool conducts, std::optional<host_port> conductor);

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
  /// @param others  the other members.
  void joined(const std::vector<introduction>& others, time_point now);
  void not_joined(const error& why, time_point now);
  /// The conductor's answer to a report. @param others  as `how` has news.
  void stands(const standing& how, const std::vector<introduction>& others, time_point now);
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

 private:
  struct greeting {
    node_id whom;       ///< who should answer; none: whoever does
    std::string about;  ///< for complaints
    bool to_join = false;
    std::uint64_t meeting = 0;  ///< this node's number
  };
  struct acquaintance {
    introduction_ptr peer;
    std::uint64_t meeting = 0;  ///< the peer's number
    time_point since;
  };

  void look_for_conductor(time_point now);
  void call_members(time_point now);
  void greet(const host_port& where, greeting whom);
  greeting take(greeting_ticket ticket);
  void join(const introduction_ptr& conductor);
  /// @returns whether `why` leaves nothing to wait for.
  bool gives_up(const error& why);
  /// The conductor is looked for anew, later.
  void look_again(const error& why, time_point now);
  void follow(const introduction_ptr& conductor);
  /// @param joined  this node has just joined them.
  void learn(const std::vector<introduction>& others, bool joined, time_point now);
  /// @returns whether the peer was known here and had lost this node, so that local actors were told of both.
  bool meet(const introduction_ptr& peer, std::uint64_t meeting, time_point now);
  void part(node_id peer, const std::string& why);
  void complain(const std::string& about, const error& why);

  introduction_ptr self_;
  bool conducts_;
  std::optional<host_port> conductor_at_;
  introduction_ptr asked_;      ///< the conductor that is asked to let this node join; null: none is
  introduction_ptr conductor_;  ///< that local actors follow; null: none
  node_id conductor_node_;      ///< where it was last
  bool joining_ = false;        ///< looking for the conductor, or waiting for its answer
  bool draining_ = false;
  standing standing_;  ///< as the conductor that is followed said last
  backoff join_wait_;
  time_point join_at_{};
  peer_roster roster_;
  std::uint64_t version_ = 0;                          ///< of the list of members that is known
  std::unordered_map<node_id, introduction> members_;  ///< names and addresses, as the conductor gave them
  std::unordered_map<node_id, acquaintance> peers_;    ///< connected
  std::unordered_map<greeting_ticket, greeting> greetings_;  ///< under way
  greeting_ticket next_greeting_ = 1;
  std::unordered_map<std::string, std::string> complaints_;  ///< the latest, by subject
  membership_actions actions_;
};

}  // namespace mooncaf
