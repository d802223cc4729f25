#include "runtime/sched/peer_roster.hpp"

#include <algorithm>
#include <iterator>

namespace mooncaf {

namespace {

constexpr auto first_wait = std::chrono::milliseconds(100);
constexpr auto longest_wait = std::chrono::seconds(2);
/// How long the side that is to be called waits before it calls itself.
constexpr auto courtesy = std::chrono::seconds(3);

}  // namespace

peer_roster::peer& peer_roster::find_or_make(node_id id) {
  auto& p = peers_[id];
  if (p.meeting == 0) p.meeting = ++meetings_;
  if (!p.wait) p.wait.emplace(first_wait, longest_wait, seed_ ^ id.value);
  return p;
}

void peer_roster::set_members(std::span<const node_id> members, bool joined, time_point now) {
  for (const auto id : members) {
    if (id == self_) continue;
    auto& p = find_or_make(id);
    // Two that joined at different conductors are both told of each other: they must not call at once.
    const duration told = duration{courtesy} / (self_ < id ? 2 : 1);
    if (!p.member) p.call_at = now + (joined ? duration{} : told);
    if (joined) p.call_at = std::min(p.call_at, now);
    p.member = true;
  }
  for (auto i = peers_.begin(); i != peers_.end();) {
    const bool gone = std::ranges::find(members, i->first) == members.end();
    if (gone) i->second.member = false;
    i = gone && !i->second.connected ? peers_.erase(i) : std::next(i);
  }
}

void peer_roster::met(node_id id, std::uint64_t meeting) {
  auto& p = find_or_make(id);
  if (meeting != 0) p.meeting = meeting;
  p.connected = true;
  p.calling = false;
  p.wait->reset();
}

void peer_roster::away(peer& p, node_id id, time_point now) {
  p.connected = p.calling = false;
  p.wait->reset();
  p.call_at = now + (self_ < id ? p.wait->next() : courtesy);
}

void peer_roster::lost(node_id id, time_point now) {
  const auto i = peers_.find(id);
  if (i == peers_.end()) return;
  if (!i->second.member) {
    peers_.erase(i);
    return;
  }
  i->second.meeting = ++meetings_;
  away(i->second, id, now);
}

void peer_roster::was_lost_by(node_id id, time_point now) { away(find_or_make(id), id, now); }

void peer_roster::missed(node_id id, time_point now) {
  const auto i = peers_.find(id);
  if (i == peers_.end()) return;
  i->second.calling = false;
  i->second.call_at = now + i->second.wait->next();
}

std::vector<node_id> peer_roster::due(time_point now) {
  std::vector<node_id> out;
  for (auto& [id, p] : peers_) {
    if (!p.member || p.connected || p.calling || now < p.call_at) continue;
    p.calling = true;
    out.push_back(id);
  }
  std::ranges::sort(out);
  return out;
}

std::vector<node_id> peer_roster::unreachable() const {
  std::vector<node_id> out;
  for (const auto& [id, p] : peers_) {
    if (p.member && !p.connected) out.push_back(id);
  }
  std::ranges::sort(out);
  return out;
}

std::uint64_t peer_roster::meeting_with(node_id id) { return find_or_make(id).meeting; }

}  // namespace mooncaf
