#include "runtime/sched/peer_fence.hpp"

namespace mooncaf {

void peer_fence::up(node_id peer) {
  std::erase(fenced_, peer);
  if (const auto i = shutting_.find(peer); i != shutting_.end()) {
    i->second.up_again = true;
  } else {
    actions_.emplace_back(peer_action::admit{peer});
  }
}

void peer_fence::down(node_id peer) {
  std::erase(fenced_, peer);
  actions_.emplace_back(peer_action::remove{peer});
  const auto [i, first] = shutting_.try_emplace(peer);
  i->second.up_again = false;
  if (first) actions_.emplace_back(peer_action::close{peer});
}

void peer_fence::fence(node_id peer, std::uint64_t then, std::uint64_t now, std::uint64_t ticket) {
  if (now > then) {
    actions_.emplace_back(peer_action::fenced{ticket});
    return;
  }
  const auto [i, first] = shutting_.try_emplace(peer);
  i->second.fences.push_back(ticket);
  if (!first) return;
  fenced_.push_back(peer);
  actions_.emplace_back(peer_action::part{peer});
  actions_.emplace_back(peer_action::close{peer});
}

void peer_fence::closed(node_id peer, bool shut) {
  if (!shut) {
    actions_.emplace_back(peer_action::close_later{peer});
    return;
  }
  const auto over = shutting_.extract(peer);
  for (const auto ticket : over.mapped().fences) actions_.emplace_back(peer_action::fenced{ticket});
  if (over.mapped().up_again) actions_.emplace_back(peer_action::admit{peer});
}

}  // namespace mooncaf
