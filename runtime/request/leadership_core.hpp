#pragma once
// Which of several conductors places requests. All of them know every node and what its shard holds, so any can
// take over with a warm index; one **leads**, the others stand by.
//
//   conductor                            every node, those of the conductors too
//   leadership_core                      leadership_voter
//      │ ── lead_claim, 6 times in `timeout` ──►  promise: nobody else for `timeout`
//      │ ◄────────── lead_vote ─────────────────  granted, or whom it obeys
//      ▼
//   stands by ── silence for `timeout` ──► asks ── quorum ──► leads ── a higher term leads ──► stands by
//                                           ▲                   │ without a quorum: places nothing, still asks
//                                           └───────────────────┘ some voter knows a higher term
//
// A promise is a lease: it runs from when the claim came, the conductor's right from when it was sent, so
// clocks need not agree, only run equally fast (within 5 %). A conductor that was stopped finds its right
// expired when it goes on. So two never lead at once. A term belongs to one place in the list (term modulo the
// conductors), and a voter grants no lower one than it knows. Gateways ask anew when the leader changes, and drop
// placements of a term below the one that their node obeys, which may have been under way.
//
// A **quorum** is the own voter, and either more than half of the electorate or every conductor of the list.
// - The electorate is all processes, not the conductors alone: two conductors can then do without either. It
//   grows and shrinks with the members. A leader makes each change in two steps, as counts of both the old and
//   the new electorate must be had until both have the news; so any two quorums share a voter, and a minority
//   never shrinks to a majority of itself.
// - Every conductor of the list is a quorum as the leader is one of them: no other can lead if all agree. That
//   begins a cluster, and gets one going again that lost half of its nodes at once.
// - The first to lead is whoever led last, if it can tell that from an earlier life: a store's directory has notes there
//   that are the latest.
// A voter that restarts is a new one, and a conductor that restarts knows no electorate: until a leader tells it
// one it may lead with all conductors alone, and its voter makes no promise before an older one must be over.
// With it terms may begin again, until voters tell of later ones. Where voters know of an electorate it asks seldom: it
// would take their votes from those that may lead.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/lead_right.hpp"
#include "runtime/base/units.hpp"
#include "runtime/request/messages.hpp"

namespace mooncaf {

/// A node's side: whom it obeys.
/// @thread  Owned by the node; not synchronised.
class leadership_voter {
 public:
  /// @param timeout   of a promise.
  /// @param promised  until then it grants nothing that is only asked for: of a conductor's process, whose
  ///                  predecessor may have made a promise.
  leadership_voter(duration timeout, time_point promised, const last_lead& last = {})
      : timeout_(timeout), until_(promised), term_(last.term), led_(last.term), clock_us_(last.clock_us) {}

  lead_vote claimed(const lead_claim& claim, time_point now);

  std::uint64_t term() const noexcept { return term_; }
  /// The conductor that has shown that it leads under `term`; none: 0.
  node_id leader() const noexcept { return leads_ ? granted_ : node_id{}; }

 private:
  bool grants(const lead_claim& claim, time_point now) const;

  duration timeout_;
  time_point until_;
  std::uint64_t term_ = 0;
  node_id granted_;
  bool leads_ = false;
  std::uint64_t led_ = 0, clock_us_ = 0;  ///< see `lead_vote`
  electorate voters_;                     ///< the latest that is known
};

/// How a conductor stands, for people.
struct lead_standing {
  std::uint64_t term = 0;
  node_id leader;           ///< none: 0
  std::uint32_t votes = 0;  ///< of the electorate, for this conductor
  std::uint32_t voters = 0;
};

/// A conductor's side.
/// @thread  Owned by the conductor; not synchronised.
class leadership_core {
 public:
  /// A claim for one member; tell `answered` what it says.
  struct order {
    node_id to;
    lead_claim claim;
  };

  /// @param place       of this conductor in the list, from 0. @param conductors  in the list; 1: it leads always.
  leadership_core(node_id self, std::uint32_t place, std::uint32_t conductors, duration timeout,
                  const last_lead& last = {});

  /// The claims that the calls so far led to; each is given once.
  std::vector<order> take_claims() { return std::exchange(claims_, {}); }
  /// How often `tick` is due.
  duration interval() const noexcept { return timeout_ / 6; }

  /// @param place  of the conductor there, if it is one.
  void joined(node_id node, std::optional<std::uint32_t> place);
  void left(node_id node);
  void tick(time_point now);
  /// The voter of this process granted a claim.
  void heard(const lead_claim& claim, time_point now);
  /// @param claim  that was sent to the member then, and granted or not.
  void answered(node_id from, const lead_claim& claim, time_point sent, const lead_vote& vote,
                time_point now);

  /// Whether this conductor may place at this moment.
  bool leads(time_point now) const { return alone() || (leading_ && now < quorum_until(electorate_)); }
  /// Its right once a quorum has heard that it leads, so that whoever leads next knows that it did.
  lead_right right() const;
  /// There is no other conductor.
  bool alone() const noexcept { return conductors_ == 1; }
  std::uint64_t term() const noexcept { return term_; }
  lead_standing standing(time_point now) const;
  /// For people: why it does not place.
  std::string why_not(time_point now) const;

 private:
  struct member {
    std::optional<std::uint32_t> place;
    std::optional<time_point> granted;  ///< when the claim was sent that it granted last, in this term
    std::pair<std::uint64_t, std::uint64_t> knows{};  ///< term and version of the electorate that it has
  };

  time_point fresh_until(node_id node) const;
  bool fresh(node_id node, time_point now) const { return now < fresh_until(node); }
  /// Until when these have the votes; the epoch: they have none.
  time_point majority_until(const std::vector<node_id>& of) const;
  time_point all_conductors_until() const;
  time_point quorum_until(const electorate& of) const;
  /// Whether a quorum has the electorate, so that nobody leads without it.
  bool committed(time_point now) const;
  std::uint32_t conductors_here(time_point now) const;
  void stand(time_point now);
  void stand_by(time_point now);
  void take_lead(time_point now);
  /// The electorate follows the members, a step at a time.
  void reform(time_point now);
  void claim_all();

  node_id self_;
  std::uint32_t place_;
  std::uint32_t conductors_;
  duration timeout_;
  std::uint64_t term_ = 0;
  std::uint64_t highest_ = 0;   ///< term that is known of
  bool asking_ = false;         ///< under `term_`
  bool leading_ = false;        ///< … and had a quorum
  bool established_ = false;    ///< … that knows
  std::uint64_t led_;           ///< the last term of its own, in an earlier life
  std::uint64_t led_before_;    ///< see `lead_right`
  std::uint64_t clock_us_ = 0;  ///< the latest of an earlier leader's
  bool outranked_ = false;      ///< another is to stand before this one does again
  bool gave_way_ = false;
  node_id leader_;      ///< that was heard of last
  time_point asked_{};  ///< when this term began
  std::optional<time_point> stand_at_;
  electorate electorate_;
  std::map<node_id, member> members_;
  std::vector<order> claims_;
};

}  // namespace mooncaf
