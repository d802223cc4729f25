#include "runtime/request/membership_core.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr auto first_join_wait = std::chrono::milliseconds(200);
constexpr auto longest_join_wait = std::chrono::seconds(2);

}  // namespace

membership_core::membership_core(introduction_ptr self, conductor_seats seats, leadership_voter voter)
    : self_(std::move(self)),
      here_(seats.here),
      voter_(std::move(voter)),
      speaks_(self_->wire),
      roster_(self_->id, self_->id.value) {
  if (here_ && seats.at.empty()) seats.at.emplace_back();
  for (auto& where : seats.at) {
    post p{std::move(where),
           {},
           {},
           {},
           false,
           {first_join_wait, longest_join_wait, self_->id.value},
           {},
           {},
           0,
           {}};
    posts_.push_back(std::move(p));
  }
}

void membership_core::tick(time_point now) {
  look_for_conductors(now);
  call_members(now);
}

// ---- conductors ----

bool membership_core::looks_for(std::size_t place) const { return !here_ || place < *here_; }

void membership_core::look_for_conductors(time_point now) {
  for (std::size_t i = 0; i < posts_.size(); ++i) {
    auto& p = posts_[i];
    if (p.member || p.joining || now < p.join_at) continue;
    if (here_ == i) {
      join(p, self_);
    } else if (looks_for(i)) {
      p.joining = true;
      greet(p.where, {p.node, "join " + to_string(p.where), i});
    }
  }
}

membership_core::post* membership_core::post_of(node_id conductor) {
  const auto at = std::ranges::find_if(posts_, [&](const post& p) {
    return (p.asked && p.asked->id == conductor) || (p.member && p.member->id == conductor);
  });
  return at == posts_.end() ? nullptr : &*at;
}

void membership_core::join(post& at, const introduction_ptr& conductor) {
  at.joining = true;
  at.asked = conductor;
  actions_.emplace_back(membership_action::join{conductor});
}

void membership_core::joined(node_id conductor, const std::vector<introduction>& others, time_point now) {
  auto* at = post_of(conductor);
  if (at == nullptr || !at->asked) return;
  const bool first = std::ranges::none_of(posts_, [&](const post& p) { return &p != at && p.member; });
  at->joining = false;
  at->wait.reset();
  complaints_.clear();
  at->version = 0;
  at->how = {};
  if (followed_ == at->member) followed_ = {};
  at->member = std::exchange(at->asked, {});
  at->others = others;
  follow();
  learn(first, now);
}

void membership_core::not_joined(node_id conductor, const error& why, time_point now) {
  auto* at = post_of(conductor);
  if (gives_up(why) || at == nullptr) return;
  at->asked = {};
  look_again(*at, why, now);
}

bool membership_core::gives_up(const error& why) {
  // Another model is another cluster: waiting would not help.
  if (why.code != ec::incompatible) return false;
  actions_.emplace_back(membership_action::give_up{why});
  return true;
}

void membership_core::look_again(post& at, const error& why, time_point now) {
  at.joining = false;
  at.join_at = now + at.wait.next();
  complain(at.where.host.empty() ? "join" : "join " + to_string(at.where), why);
}

void membership_core::follow() {
  introduction_ptr best;
  for (const auto& p : posts_) {
    if (p.member && p.member->id == voter_.leader()) best = p.member;
  }
  for (const auto& p : posts_) {
    if (!best && p.member && p.member == followed_) best = p.member;
  }
  for (const auto& p : posts_) {
    if (!best && p.member) best = p.member;
  }
  if (best == followed_ && voter_.term() == followed_term_) return;
  followed_ = best;
  followed_term_ = voter_.term();
  actions_.emplace_back(membership_action::follow{best, followed_term_});
}

lead_vote membership_core::claimed(const lead_claim& claim, time_point now) {
  const auto vote = voter_.claimed(claim, now);
  // Who only asks may not get through: until somebody does, the one before is asked.
  if (vote.granted && claim.leads) follow();
  return vote;
}

void membership_core::stands(node_id conductor, const standing& how, const std::vector<introduction>& others,
                             time_point now) {
  auto* at = post_of(conductor);
  if (at == nullptr || !at->member) return;
  if (!how.member) {
    // The conductor dropped this node for a silence that is over.
    if (!at->joining) join(*at, at->member);
    return;
  }
  at->version = how.version;
  at->how = how;
  if (!how.news) return;
  at->others = others;
  learn(false, now);
}

std::vector<std::pair<introduction_ptr, std::uint64_t>> membership_core::conductors() const {
  std::vector<std::pair<introduction_ptr, std::uint64_t>> out;
  for (const auto& p : posts_) {
    if (p.member) out.emplace_back(p.member, p.version);
  }
  return out;
}

void membership_core::drain() { draining_ = true; }

node_report membership_core::report() const {
  node_report out;
  out.node = self_->id;
  out.unreachable = roster_.unreachable();
  out.draining = draining_;
  out.term = voter_.term();
  out.speaks = speaks_;
  out.leads = posts_.size() == 1 ? here_.has_value() : voter_.leader() == self_->id;
  for (const auto& p : posts_) {
    if (!p.member || p.member != followed_) continue;
    out.roster = p.version;
    out.announced = p.how.draining;
    out.last = p.how.last;
  }
  return out;
}

// ---- the peers ----

void membership_core::learn(bool joined, time_point now) {
  std::vector<node_id> ids;
  members_.clear();
  for (const auto& p : posts_) {
    for (const auto& other : p.others) {
      if (!p.member || other.id == self_->id || !members_.emplace(other.id, other).second) continue;
      ids.push_back(other.id);
    }
  }
  roster_.set_members(ids, joined, now);
  call_members(now);
}

bool membership_core::calls(node_id member) const {
  if (posts_.size() > 1) return !here_ && members_.at(member).seat == 0;
  return posts_.empty() || posts_.front().member || posts_.front().node != member;
}

void membership_core::call_members(time_point now) {
  for (const auto id : roster_.due(now)) {
    if (!calls(id)) {
      roster_.missed(id, now);
      continue;
    }
    const auto& member = members_.at(id);
    greet({member.host, member.control_port}, {id, "call " + member.name});
  }
}

void membership_core::greet(const host_port& where, greeting whom) {
  const auto ticket = next_greeting_++;
  greetings_.emplace(ticket, std::move(whom));
  actions_.emplace_back(membership_action::dial{ticket, where});
}

membership_core::greeting membership_core::take(greeting_ticket ticket) {
  return std::move(greetings_.extract(ticket).mapped());
}

std::uint64_t membership_core::reached(greeting_ticket ticket) {
  // Only now: a loss while the link was opened began a new meeting.
  auto& call = greetings_.at(ticket);
  return call.meeting = roster_.meeting_with(call.whom);
}

void membership_core::missed(greeting_ticket ticket, const error& why, time_point now) {
  const auto call = take(ticket);
  if (call.to_join) return look_again(posts_[*call.to_join], why, now);
  roster_.missed(call.whom, now);
  complain(call.about, why);
}

void membership_core::refused(greeting_ticket ticket, const error& why, time_point now) {
  if (!gives_up(why)) missed(ticket, why, now);
}

void membership_core::answered(greeting_ticket ticket, const introduction_ptr& peer, std::uint64_t meeting,
                               bool conducts, time_point now) {
  const auto call = take(ticket);
  meet(peer, meeting, now);
  if (peer->id != self_->id) roster_.met(peer->id, call.meeting);
  if (!call.to_join) return;
  auto& at = posts_[*call.to_join];
  if (!conducts) return look_again(at, {ec::not_found, "no conductor runs there"}, now);
  at.node = peer->id;
  actions_.emplace_back(membership_action::found{peer});
  join(at, peer);
}

result<std::uint64_t> membership_core::greeted(const introduction_ptr& peer, std::uint64_t meeting,
                                               time_point now) {
  if (peer->fingerprint != self_->fingerprint) {
    return fail(ec::incompatible, "node " + self_->name + " at " +
                                      to_string(host_port{self_->host, self_->control_port}) + " serves " +
                                      self_->model + " (" + self_->layout + "), node " + peer->name +
                                      " has " + peer->model + " (" + peer->layout + ")");
  }
  // The peer may have meant a predecessor at this address: a new number tells it that what it had here is
  // gone.
  if (meet(peer, meeting, now)) roster_.begin_anew(peer->id);
  meet_conductor(peer);
  return roster_.meeting_with(peer->id);
}

void membership_core::meet_conductor(const introduction_ptr& peer) {
  if (!here_ || peer->seat <= *here_ + 1 || peer->seat > posts_.size()) return;
  auto& at = posts_[peer->seat - 1];
  at.node = peer->id;
  if (!at.member && !at.joining) join(at, peer);
}

bool membership_core::meet(const introduction_ptr& peer, std::uint64_t meeting, time_point now) {
  if (peer->id == self_->id) return false;
  const auto known = peers_.find(peer->id);
  const bool had_lost_us = known != peers_.end();
  if (had_lost_us) {
    // A smaller number is of a greeting that was overtaken, or meant for a predecessor at this address.
    if (meeting <= known->second.meeting) return false;
    roster_.was_lost_by(peer->id, now);
    part(peer->id, "it had lost this node");
  }
  peers_.emplace(peer->id, acquaintance{peer, meeting, now});
  roster_.met(peer->id);
  complaints_.erase("call " + peer->name);
  agree_on_version();  // before anybody here sends the peer anything
  actions_.emplace_back(membership_action::meet{peer});
  return had_lost_us;
}

void membership_core::lost(node_id peer, const std::string& why, time_point now) {
  if (!peers_.contains(peer)) return;
  roster_.lost(peer, now);
  part(peer, why);
  agree_on_version();
}

void membership_core::fenced(std::span<const node_id> peers, time_point asked, time_point now) {
  for (const auto id : peers) {
    const auto peer = peers_.find(id);
    // A peer that was greeted after the question is not the one that was shut out.
    if (peer != peers_.end() && peer->second.since < asked) lost(id, "it was fenced", now);
  }
}

void membership_core::part(node_id peer, const std::string& why) {
  auto known = peers_.extract(peer);
  actions_.emplace_back(membership_action::part{std::move(known.mapped().peer), why});
  for (auto& p : posts_) {
    if (p.node != peer) continue;
    p.member = {};
    follow();
  }
}

void membership_core::agree_on_version() {
  auto version = self_->wire;
  for (const auto& [id, known] : peers_) version = std::min(version, known.peer->wire);
  if (std::exchange(speaks_, version) != version) actions_.emplace_back(membership_action::speak{version});
}

void membership_core::complain(const std::string& about, const error& why) {
  const auto problem = to_string(why);
  if (std::exchange(complaints_[about], problem) == problem) return;
  actions_.emplace_back(membership_action::complain{about, problem});
}

void membership_core::close() {
  peers_.clear();
  members_.clear();
  greetings_.clear();
  actions_.clear();
  posts_.clear();
  self_ = followed_ = nullptr;
}

}  // namespace mooncaf
