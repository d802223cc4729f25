#include "runtime/launch/keeper_core.hpp"

#include <algorithm>
#include <array>

namespace mooncaf::launch {

void keeper_core::enter(kept& k, phase_of phase, time_point now) {
  k.phase = phase;
  k.since = now;
}

void keeper_core::became_ready(const std::string& node, time_point now) {
  const auto at = nodes_.find(node);
  if (at != nodes_.end() && at->second.phase == phase_of::starting) enter(at->second, phase_of::ready, now);
}

void keeper_core::ended(const std::string& node, const std::string& how, time_point now) {
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) return;
  auto& k = at->second;
  if (k.phase == phase_of::ending) {
    nodes_.erase(at);  // `due` starts it anew if it is wished with another text
    return;
  }
  k.last_end = how;
  k.at = now + k.policy.ended(now - k.started);
  enter(k, phase_of::waiting, now);
}

keeper_action keeper_core::spawn(const std::string& name, const std::string& text, kept& k, time_point now) {
  k.text = text;
  k.started = now;
  ++k.starts;
  enter(k, phase_of::starting, now);
  return {keeper_order::spawn, name, text};
}

// Ends what is not wished first, then starts what is missing.
std::vector<keeper_action> keeper_core::due(time_point now) {
  std::vector<keeper_action> out;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    auto& [name, k] = *it;
    const auto wanted = wished_.find(name);
    const bool as_wished = wanted != wished_.end() && wanted->second == k.text;
    if (k.phase == phase_of::waiting && !as_wished) {
      it = nodes_.erase(it);
      continue;
    }
    if (k.phase == phase_of::ending) {
      if (!k.killed && now >= k.at) {
        k.killed = true;
        out.push_back({keeper_order::kill, name, {}});
      }
    } else if (!as_wished) {
      enter(k, phase_of::ending, now);
      k.at = now + stop_within_;
      out.push_back({keeper_order::terminate, name, {}});
    } else if (k.phase == phase_of::waiting && now >= k.at) {
      out.push_back(spawn(name, wanted->second, k, now));
    }
    ++it;
  }
  for (const auto& [name, text] : wished_) {
    if (nodes_.contains(name)) continue;
    kept fresh;
    fresh.policy = restart_policy{limits_};
    out.push_back(spawn(name, text, nodes_.emplace(name, std::move(fresh)).first->second, now));
  }
  return out;
}

duration keeper_core::until_next(time_point now, duration longest) const {
  for (const auto& [name, k] : nodes_) {
    const bool timed = k.phase == phase_of::waiting || (k.phase == phase_of::ending && !k.killed);
    if (timed) longest = std::min(longest, std::max<duration>(k.at - now, duration::zero()));
  }
  return longest;
}

std::map<std::string, kept_node> keeper_core::view(time_point now) const {
  constexpr std::array names{"starting", "ready", "waiting", "ending"};
  std::map<std::string, kept_node> all;
  for (const auto& [name, k] : nodes_) {
    const bool runs = k.phase != phase_of::waiting;
    all[name] = {names[static_cast<std::size_t>(k.phase)],
                 k.text,
                 k.last_end,
                 k.starts,
                 k.policy.loops(runs ? now - k.started : duration::zero()),
                 k.since};
  }
  return all;
}

}  // namespace mooncaf::launch
