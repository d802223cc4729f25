#include "runtime/request/leadership_core.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace mooncaf {

namespace {

std::pair<std::uint64_t, std::uint64_t> age_of(const electorate& e) { return {e.term, e.version}; }

bool knows_of(const electorate& e) { return e.term != 0; }

}  // namespace

// ---- a voter ----

bool leadership_voter::grants(const lead_claim& claim, time_point now) const {
  if (claim.term < term_) return false;
  if (claim.term == term_ || claim.conductor == granted_) return claim.conductor == granted_;
  // Where another leads there is no quorum left for whoever has the promise.
  return claim.leads || now >= until_;
}

lead_vote leadership_voter::claimed(const lead_claim& claim, time_point now) {
  lead_vote out;
  out.granted = grants(claim, now);
  if (out.granted) {
    // Who only asks for long must not keep the voters from all others.
    if (claim.leads || claim.term > term_) until_ = now + timeout_;
    leads_ = claim.leads || (leads_ && claim.term == term_);
    if (claim.leads) led_ = claim.term;
    clock_us_ = std::max(clock_us_, claim.clock_us);
    term_ = claim.term;
    granted_ = claim.conductor;
    const bool whole = !claim.voters.voters.empty();
    if (whole && age_of(claim.voters) > age_of(voters_)) voters_ = claim.voters;
  }
  out.term = term_;
  out.leader = leader();
  out.led = led_;
  out.clock_us = clock_us_;
  out.known = {voters_.term, voters_.version, {}, {}};
  if (age_of(voters_) > age_of(claim.voters)) out.known = voters_;
  return out;
}

// ---- a conductor ----

leadership_core::leadership_core(node_id self, std::uint32_t place, std::uint32_t conductors,
                                 duration timeout, const last_lead& last)
    : self_(self),
      place_(place),
      conductors_(conductors),
      timeout_(timeout),
      highest_(last.term),
      led_(last.term),
      led_before_(last.term) {}

void leadership_core::joined(node_id node, std::optional<std::uint32_t> place) {
  members_[node] = {place, {}, {}};
}

void leadership_core::left(node_id node) { members_.erase(node); }

void leadership_core::tick(time_point now) {
  if (alone()) return;
  if (!stand_at_) stand_by(now);
  if (!asking_ && now >= *stand_at_) return stand(now);
  if (!asking_) return;
  if (!leading_ && now - asked_ >= timeout_) return stand_by(now);
  if (leading_) reform(now);
  claim_all();
}

/// The oldest stands first: a place later waits an interval longer.
void leadership_core::stand_by(time_point now) {
  const bool ended = std::exchange(asking_, false);
  leading_ = established_ = false;
  const auto led = members_.find(leader_);
  std::uint32_t before = place_;
  if (led != members_.end() && led->second.place && *led->second.place < place_) --before;
  const auto pause = std::exchange(outranked_, false) ? (conductors_ + 1) * timeout_
                     : ended                          ? duration{}
                                                      : timeout_;
  stand_at_ = std::max(stand_at_.value_or(now), now + pause + before * interval());
}

void leadership_core::stand(time_point now) {
  const auto above = std::max(highest_, term_) + 1;
  term_ = above + (place_ + conductors_ - above % conductors_) % conductors_;
  asking_ = true;
  leading_ = established_ = false;
  asked_ = now;
  for (auto& [id, m] : members_) m.granted.reset();
  claim_all();
}

void leadership_core::heard(const lead_claim& claim, time_point now) {
  if (alone() || claim.conductor == self_) return;
  highest_ = std::max(highest_, claim.term);
  if (claim.term < term_) return;
  if (claim.leads) leader_ = claim.conductor;
  const bool whole = !claim.voters.voters.empty();
  if (claim.leads && whole && age_of(claim.voters) > age_of(electorate_)) electorate_ = claim.voters;
  asking_ = false;
  stand_by(now);
}

void leadership_core::answered(node_id from, const lead_claim& claim, time_point sent, const lead_vote& vote,
                               time_point now) {
  highest_ = std::max(highest_, vote.term);
  const auto known = members_.find(from);
  if (known == members_.end() || claim.term != term_ || !asking_) return;
  outranked_ = outranked_ || (!knows_of(electorate_) && knows_of(vote.known));
  auto& voter = known->second;
  if (!vote.granted) {
    voter.granted.reset();
    if (!leading_ || vote.term < term_) return;
    // Either another leads, or a rival that did not get through took this voter: a higher term gets it back.
    if (vote.leader == node_id{}) return stand(now);
    leader_ = vote.leader;
    asking_ = false;
    return stand_by(now);
  }
  voter.knows = {vote.known.term, vote.known.version};
  if (!leading_) {
    led_before_ = std::max(led_before_, vote.led);
    clock_us_ = std::max(clock_us_, vote.clock_us);
  }
  // What is only asked for is promised once, perhaps by an answer that was lost.
  const auto promised = claim.leads ? sent : asked_;
  voter.granted = std::max(voter.granted.value_or(promised), promised);
  established_ = established_ || (leading_ && committed(now));
  if (leading_) return reform(now);
  // Without an electorate of a leader's this conductor cannot tell whether theirs is the latest.
  if (knows_of(electorate_) && age_of(vote.known) > age_of(electorate_)) electorate_ = vote.known;
  if (now >= quorum_until(electorate_)) return;
  if (!knows_of(electorate_) && led_before_ > led_ && !std::exchange(gave_way_, true)) {
    outranked_ = true;
    return stand_by(now);
  }
  take_lead(now);
}

void leadership_core::take_lead(time_point now) {
  leading_ = true;
  leader_ = self_;
  electorate_.term = term_;
  ++electorate_.version;
  reform(now);
  claim_all();
}

void leadership_core::reform(time_point now) {
  if (!electorate_.voters.empty() && !committed(now)) return;
  electorate next = electorate_;
  ++next.version;
  if (!next.before.empty()) {
    next.before.clear();
  } else {
    std::vector<node_id> wanted;
    for (const auto& [id, m] : members_) {
      const bool votes = std::ranges::find(next.voters, id) != next.voters.end();
      if (votes || fresh(id, now)) wanted.push_back(id);
    }
    if (wanted == next.voters) return;
    next.before = std::exchange(next.voters, std::move(wanted));
    // Where the electorate before is not known, or gone, nothing counts before all conductors have the new one.
    if (next.before.empty()) next.before.emplace_back();
    if (now >= quorum_until(next)) return;
  }
  electorate_ = std::move(next);
  claim_all();
}

void leadership_core::claim_all() {
  for (const auto& [id, m] : members_) {
    lead_claim claim{term_, self_, leading_, electorate_};
    if (m.knows == age_of(electorate_)) {
      claim.voters.voters.clear();
      claim.voters.before.clear();
    }
    claims_.push_back({id, std::move(claim)});
  }
}

// ---- counts ----

time_point leadership_core::fresh_until(node_id node) const {
  const auto m = members_.find(node);
  return m == members_.end() || !m->second.granted ? time_point{}
                                                   : *m->second.granted + timeout_ - timeout_ / 20;
}

time_point leadership_core::majority_until(const std::vector<node_id>& of) const {
  if (of.empty()) return {};
  std::vector<time_point> votes;
  for (const auto id : of) votes.push_back(fresh_until(id));
  const auto last_needed = votes.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::ranges::nth_element(votes, last_needed, std::greater{});
  return *last_needed;
}

std::uint32_t leadership_core::conductors_here(time_point now) const {
  std::set<std::uint32_t> places;
  for (const auto& [id, m] : members_) {
    if (m.place && fresh(id, now)) places.insert(*m.place);
  }
  return static_cast<std::uint32_t>(places.size());
}

time_point leadership_core::all_conductors_until() const {
  std::map<std::uint32_t, time_point> places;
  for (const auto& [id, m] : members_)
    if (m.place) places[*m.place] = std::max(places[*m.place], fresh_until(id));
  if (places.size() < conductors_) return {};
  return std::ranges::min_element(places, {}, [](const auto& p) { return p.second; })->second;
}

time_point leadership_core::quorum_until(const electorate& of) const {
  auto most = knows_of(of) ? majority_until(of.voters) : time_point{};
  if (!of.before.empty()) most = std::min(most, majority_until(of.before));
  return std::min(fresh_until(self_), std::max(most, all_conductors_until()));
}

lead_right leadership_core::right() const {
  if (!leading_ || !established_) return {{}, term_, led_before_, clock_us_};
  return {quorum_until(electorate_), term_, led_before_, clock_us_};
}

bool leadership_core::committed(time_point now) const {
  const auto has = [&](node_id id) {
    const auto m = members_.find(id);
    return m != members_.end() && m->second.knows >= age_of(electorate_) && fresh(id, now);
  };
  const auto most = [&](const std::vector<node_id>& of) {
    return 2 * static_cast<std::size_t>(std::ranges::count_if(of, has)) > of.size();
  };
  std::set<std::uint32_t> places;
  for (const auto& [id, m] : members_) {
    if (m.place && has(id)) places.insert(*m.place);
  }
  if (places.size() == conductors_) return true;
  return most(electorate_.voters) && (electorate_.before.empty() || most(electorate_.before));
}

// ---- for people ----

lead_standing leadership_core::standing(time_point now) const {
  lead_standing out;
  out.term = std::max(term_, highest_);
  out.leader = alone() ? self_ : leader_;
  out.voters = static_cast<std::uint32_t>(electorate_.voters.size());
  out.votes = static_cast<std::uint32_t>(
      std::ranges::count_if(electorate_.voters, [&](node_id id) { return fresh(id, now); }));
  if (leader_ == self_ && !leads(now)) out.leader = {};
  return out;
}

std::string leadership_core::why_not(time_point now) const {
  if (leads(now)) return {};
  if (!asking_ && leader_ != self_ && leader_ != node_id{})
    return "this conductor stands by; the one of node " + to_string(leader_) + " led last";
  if (!knows_of(electorate_))
    return "this conductor knows of no leader, and leads only with all " + std::to_string(conductors_) +
           " conductors of the list; " + std::to_string(conductors_here(now)) + " follow it";
  const auto s = standing(now);
  return "this conductor is cut off from most of the cluster: " + std::to_string(s.votes) + " of " +
         std::to_string(s.voters) + " voters follow it, and more than half must";
}

}  // namespace mooncaf
