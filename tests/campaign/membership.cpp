// Who is in the cluster: a twin of actors/node.cpp.

#include <algorithm>

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration report_interval = 250ms;
constexpr duration answer_limit = 5s;

}  // namespace

membership::membership(machine& here)
    : here_(here), roster_(node_of(here.self), here.self + 1), join_wait_(200ms, 2s, here.self + 1) {}

void membership::start() {
  if (here_.what.conductor) {
    conductor_process_ = here_.self;
    join();
  }
  tick();
}

void membership::tick() {
  report();
  look_for_conductor();
  call_members();
  here_.w.net.in(here_.self, report_interval, [this] { tick(); });
}

void membership::report() {
  // Peers that the data plane has shut out are greeted anew.
  const auto fenced = here_.mail.fenced();
  for (const auto node : fenced) {
    const auto p = process_of(node);
    const auto peer = peers_.find(p);
    if (peer == peers_.end() || peer->second.second >= here_.now()) continue;
    roster_.lost(node_of(p), here_.now());
    part(p);
  }
  if (!conductor_) return;
  node_report mine;
  mine.node = node_of(here_.self);
  mine.roster = version_;
  mine.unreachable = roster_.unreachable();
  mine.has_shard = here_.cache != nullptr;
  mine.shard.slots_total = here_.what.slots;
  const auto to = *conductor_process_;
  here_.w.net.send(here_.self, to, [this, to, mine] {
    auto answer = here_.at(to).conductor->report(mine);
    here_.w.net.send(to, here_.self,
                     [this, answer = std::move(answer)] { stand(answer.first, answer.second); });
  });
}

void membership::look_for_conductor() {
  if (conductor_ || joining_ || here_.what.conductor || here_.now() < join_at_) return;
  joining_ = true;
  conductor_process_ = here_.w.conductor;
  greet(
      *conductor_process_, [this] { join(); }, [this] { conductor_missed(); });
}

void membership::conductor_missed() {
  joining_ = false;
  join_at_ = here_.now() + join_wait_.next();
}

void membership::join() {
  joining_ = true;
  const auto to = *conductor_process_;
  auto open = std::make_shared<bool>(true);
  here_.w.net.in(here_.self, answer_limit, [this, open] {
    if (std::exchange(*open, false)) conductor_missed();
  });
  here_.w.net.send(here_.self, to, [this, to, open] {
    auto others = here_.at(to).conductor->join(here_.self);
    here_.w.net.send(to, here_.self, [this, open, others = std::move(others)] {
      if (!std::exchange(*open, false)) return;
      if (!others) return conductor_missed();
      joining_ = false;
      join_wait_.reset();
      version_ = 0;
      follow(true);
      learn(*others, true);
    });
  });
}

void membership::stand(const standing& how, const std::vector<node_id>& others) {
  if (!how.member) {
    if (conductor_ && !joining_) join();
    return;
  }
  version_ = how.version;
  if (how.news) learn(others, false);
}

void membership::follow(bool there) {
  conductor_ = there;
  here_.follow(there);
}

void membership::learn(const std::vector<node_id>& others, bool joined) {
  roster_.set_members(others, joined, here_.now());
  call_members();
}

void membership::call_members() {
  for (const auto id : roster_.due(here_.now())) {
    const auto p = process_of(id);
    if (p == conductor_process_ && !conductor_) {
      roster_.missed(id, here_.now());  // `look_for_conductor` calls it
    } else {
      greet(
          p, [] {}, [this, id] { roster_.missed(id, here_.now()); });
    }
  }
}

void membership::greet(process other, std::function<void()> answered, std::function<void()> missed) {
  here_.w.net.dial(here_.self, other,
                   [this, other, answered = std::move(answered), missed = std::move(missed)](bool ok) {
                     if (!ok) return missed();
                     const auto meeting = roster_.meeting_with(node_of(other));
                     auto open = std::make_shared<bool>(true);
                     here_.w.net.in(here_.self, answer_limit, [open, missed] {
                       if (std::exchange(*open, false)) missed();
                     });
                     here_.w.net.send(here_.self, other, [this, other, meeting, open, answered] {
                       const auto theirs = here_.at(other).member.greeted(here_.self, meeting);
                       here_.w.net.send(other, here_.self, [this, other, meeting, theirs, open, answered] {
                         if (!std::exchange(*open, false)) return;
                         meet(other, theirs);
                         if (other != here_.self) roster_.met(node_of(other), meeting);
                         answered();
                       });
                     });
                   });
}

std::uint64_t membership::greeted(process other, std::uint64_t meeting) {
  if (meet(other, meeting)) roster_.begin_anew(node_of(other));
  return roster_.meeting_with(node_of(other));
}

bool membership::meet(process other, std::uint64_t meeting) {
  if (other == here_.self) return false;
  const auto known = peers_.find(other);
  const bool had_lost_us = known != peers_.end();
  if (had_lost_us) {
    if (meeting <= known->second.first) return false;
    roster_.was_lost_by(node_of(other), here_.now());
    part(other);
  }
  peers_.emplace(other, std::pair{meeting, here_.now()});
  roster_.met(node_of(other));
  here_.local_up(other);
  return had_lost_us;
}

void membership::lost(process other) {
  if (!peers_.contains(other)) return;
  roster_.lost(node_of(other), here_.now());
  part(other);
}

void membership::part(process other) {
  peers_.erase(other);
  here_.local_down(other);
  if (other == conductor_process_) follow(false);
}

}  // namespace mooncaf::campaign
