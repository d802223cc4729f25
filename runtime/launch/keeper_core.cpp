#include "runtime/launch/keeper_core.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mooncaf::launch {

void keeper_core::wish(node_wishes nodes) {
  wished_ = std::move(nodes);
  for (auto& [name, k] : nodes_) k.refused = false;  // asked anew, so tried anew
}

void keeper_core::became_ready(std::uint32_t run, time_point now) {
  for (auto& [name, k] : nodes_) {
    if (k.now.run != run || k.now.phase != phase_of::starting) continue;
    k.now.phase = phase_of::ready;
    k.now.since = now;
    if (k.before) leaving_.emplace_back(name, *std::exchange(k.before, std::nullopt));
    return;
  }
}

void keeper_core::ended(std::uint32_t run, const std::string& how, time_point now) {
  if (std::erase_if(leaving_, [&](const auto& l) { return l.second.run == run; }) > 0) return;
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    auto& k = it->second;
    if (k.before && k.before->run == run) k.before.reset();  // its successor starts anyway
    if (k.now.run != run) continue;
    if (k.now.phase == phase_of::ending) {
      nodes_.erase(it);  // `due` starts it anew if it is wished with another text
      return;
    }
    k.last_end = how;
    if (k.before) {
      k.now = *std::exchange(k.before, std::nullopt);
      k.refused = true;
      return;
    }
    k.now.at = now + k.policy.ended(now - k.now.started);
    k.now.phase = phase_of::waiting;
    k.now.since = now;
    return;
  }
}

void keeper_core::spawn(const std::string& name, const wished_node& wanted, kept& k, time_point now,
                        orders& out) {
  k.now = {++runs_, wanted.generation, wanted.text, phase_of::starting, now, now, {}, false};
  ++k.starts;
  out.push_back({keeper_order::spawn, name, wanted.text, k.now.run});
}

void keeper_core::terminate(const std::string& name, process& p, time_point now, orders& out) {
  p.phase = phase_of::ending;
  p.since = now;
  p.at = now + stop_within_;
  out.push_back({keeper_order::terminate, name, {}, p.run});
}

void keeper_core::kill_late(const std::string& name, process& p, time_point now, orders& out) {
  if (p.killed || now < p.at) return;
  p.killed = true;
  out.push_back({keeper_order::kill, name, {}, p.run});
}

bool keeper_core::adapt(const std::string& name, kept& k, time_point now, orders& out) {
  const auto wanted = wished_.find(name);
  const bool wished = wanted != wished_.end();
  const bool as_wished =
      wished && wanted->second.text == k.now.text && wanted->second.generation == k.now.generation;
  if (k.now.phase == phase_of::waiting && !as_wished) return true;
  if (k.now.phase == phase_of::ending) {
    kill_late(name, k.now, now, out);
  } else if (as_wished) {
    if (k.now.phase == phase_of::waiting && now >= k.now.at) spawn(name, wanted->second, k, now, out);
  } else if (wished && wanted->second.overlaps && k.now.phase == phase_of::ready) {
    if (k.refused) return false;
    k.before = k.now;
    spawn(name, wanted->second, k, now, out);
  } else {
    if (k.before) leaving_.emplace_back(name, *std::exchange(k.before, std::nullopt));
    terminate(name, k.now, now, out);
  }
  return false;
}

// Ends what is not wished first, then starts what is missing.
std::vector<keeper_action> keeper_core::due(time_point now) {
  orders out;
  for (auto it = nodes_.begin(); it != nodes_.end();)
    it = adapt(it->first, it->second, now, out) ? nodes_.erase(it) : std::next(it);
  for (auto& [name, p] : leaving_) {
    if (p.phase == phase_of::ending) kill_late(name, p, now, out);
    else terminate(name, p, now, out);
  }
  for (const auto& [name, wanted] : wished_) {
    if (nodes_.contains(name)) continue;
    kept fresh;
    fresh.policy = restart_policy{limits_};
    spawn(name, wanted, nodes_.emplace(name, std::move(fresh)).first->second, now, out);
  }
  return out;
}

duration keeper_core::until_next(time_point now, duration longest) const {
  const auto take = [&](const process& p) {
    const bool timed = p.phase == phase_of::waiting || (p.phase == phase_of::ending && !p.killed);
    if (timed) longest = std::min(longest, std::max<duration>(p.at - now, duration::zero()));
  };
  for (const auto& [name, k] : nodes_) take(k.now);
  for (const auto& [name, p] : leaving_) take(p);
  return longest;
}

std::map<std::string, kept_node> keeper_core::view(time_point now) const {
  constexpr std::array names{"starting", "ready", "waiting", "ending"};
  std::map<std::string, kept_node> all;
  for (const auto& [name, k] : nodes_) {
    const bool runs = k.now.phase != phase_of::waiting;
    all[name] = {names[static_cast<std::size_t>(k.now.phase)],
                 k.now.text,
                 k.last_end,
                 k.starts,
                 k.now.generation,
                 k.now.run,
                 k.policy.loops(runs ? now - k.now.started : duration::zero()),
                 k.refused,
                 false,
                 k.now.since};
  }
  for (const auto& [name, p] : leaving_) {
    auto& shown =
        all.try_emplace(name, kept_node{.phase = "ending", .run = p.run, .since = p.since}).first->second;
    shown.leaving = true;
  }
  return all;
}

}  // namespace mooncaf::launch
