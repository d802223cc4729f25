#include "runtime/request/membership_core.hpp"

#include <utility>

namespace mooncaf {

namespace {

constexpr auto first_join_wait = std::chrono::milliseconds(200);
constexpr auto longest_join_wait = std::chrono::seconds(2);

}  // namespace

membership_core::membership_core(introduction_ptr self, bool conducts, std::optional<host_port> conductor)
    : self_(std::move(self)),
      conducts_(conducts),
      conductor_at_(std::move(conductor)),
      join_wait_(first_join_wait, longest_join_wait, self_->id.value),
      roster_(self_->id, self_->id.value) {}

void membership_core::tick(time_point now) {
  look_for_conductor(now);
  call_members(now);
}

// ---- the conductor ----

void membership_core::look_for_conductor(time_point now) {
  if (conductor_ || joining_ || now < join_at_) return;
  if (conducts_) return join(self_);
  if (!conductor_at_) return;
  joining_ = true;
  greet(*conductor_at_, {conductor_node_, "join " + to_string(*conductor_at_), true});
}

void membership_core::join(const introduction_ptr& conductor) {
  joining_ = true;
  asked_ = conductor;
  actions_.emplace_back(membership_action::join{conductor});
}

void membership_core::joined(const std::vector<introduction>& others, time_point now) {
  joining_ = false;
  join_wait_.reset();
  complaints_.clear();
  version_ = 0;
  follow(std::exchange(asked_, {}));
  learn(others, true, now);
}

void membership_core::not_joined(const error& why, time_point now) {
  if (!gives_up(why)) look_again(why, now);
}

bool membership_core::gives_up(const error& why) {
  // Another model is another cluster: waiting would not help.
  if (why.code != ec::incompatible) return false;
  actions_.emplace_back(membership_action::give_up{why});
  return true;
}

void membership_core::look_again(const error& why, time_point now) {
  joining_ = false;
  join_at_ = now + join_wait_.next();
  complain(conductor_at_ ? "join " + to_string(*conductor_at_) : "join", why);
}

void membership_core::follow(const introduction_ptr& conductor) {
  conductor_ = conductor;
  standing_ = {};
  actions_.emplace_back(membership_action::follow{conductor});
}

void membership_core::stands(const standing& how, const std::vector<introduction>& others, time_point now) {
  if (!how.member) {
    // The conductor dropped this node for a silence that is over.
    if (conductor_ && !joining_) join(conductor_);
    return;
  }
  version_ = how.version;
  standing_ = how;
  if (how.news) learn(others, false, now);
}

void membership_core::drain() { draining_ = true; }

node_report membership_core::report() const {
  node_report out;
  out.node = self_->id;
  out.roster = version_;
  out.unreachable = roster_.unreachable();
  out.draining = draining_;
  out.announced = standing_.draining;
  out.last = standing_.last;
  return out;
}

// ---- the peers ----

void membership_core::learn(const std::vector<introduction>& others, bool joined, time_point now) {
  std::vector<node_id> ids;
  members_.clear();
  for (const auto& other : others) {
    if (other.id == self_->id) continue;
    ids.push_back(other.id);
    members_.emplace(other.id, other);
  }
  roster_.set_members(ids, joined, now);
  call_members(now);
}

void membership_core::call_members(time_point now) {
  for (const auto id : roster_.due(now)) {
    // While there is no conductor, its node is called by `look_for_conductor`.
    if (id == conductor_node_ && !conductor_) {
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
  if (call.to_join) return look_again(why, now);
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
  if (!conducts) return look_again({ec::not_found, "no conductor runs there"}, now);
  conductor_node_ = peer->id;
  actions_.emplace_back(membership_action::found{peer});
  join(peer);
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
  return roster_.meeting_with(peer->id);
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
  actions_.emplace_back(membership_action::meet{peer});
  return had_lost_us;
}

void membership_core::lost(node_id peer, const std::string& why, time_point now) {
  if (!peers_.contains(peer)) return;
  roster_.lost(peer, now);
  part(peer, why);
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
  if (peer == conductor_node_) follow({});
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
  self_ = asked_ = conductor_ = nullptr;
}

}  // namespace mooncaf
