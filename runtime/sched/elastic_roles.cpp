#include "runtime/sched/elastic_roles.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

namespace {

constexpr worker_role other_of(worker_role role) noexcept {
  return role == worker_role::prefill ? worker_role::decode : worker_role::prefill;
}

constexpr worker_role both_roles[] = {worker_role::prefill, worker_role::decode};

}  // namespace

elastic_roles::elastic_roles(const elastic_role_options& options, duration ttft_slo, duration tbt_slo)
    : options_(options), rule_({.hold = options.hold}), watch_(ttft_slo, tbt_slo) {}

// ---- members ----

void elastic_roles::added(const instance_desc& desc, cluster_state& cluster) {
  if (!options_.on) return;
  auto& n = nodes_[desc.node];
  auto& mine = n.of(desc.role);
  mine.workers.push_back(desc.id);
  if (!n.has_both()) {
    // A node of one role plays it, and its instances are live as they joined.
    mine.now = role_step::plays;
    return even_out(cluster, now_);
  }
  if (mine.workers.size() > 1) return set(desc.node, desc.role, mine.now, cluster);
  const auto prompts = players(worker_role::prefill, desc.node);
  const auto answers = players(worker_role::decode, desc.node);
  const bool alone = prompts == 0 && answers == 0;
  const bool takes_prompts = alone || prompts <= answers, takes_answers = alone || !takes_prompts;
  set(desc.node, worker_role::prefill, takes_prompts ? role_step::plays : role_step::rests, cluster);
  set(desc.node, worker_role::decode, takes_answers ? role_step::plays : role_step::rests, cluster);
  even_out(cluster, now_);
}

void elastic_roles::left(node_id node, cluster_state& cluster) {
  const auto gone = nodes_.extract(node);
  if (!gone) return;
  for (const auto* s : {&gone.mapped().prefill, &gone.mapped().decode})
    for (const auto w : s->workers) watch_.removed(w);
  even_out(cluster, now_);
}

void elastic_roles::removed(worker_id worker, cluster_state& cluster) {
  watch_.removed(worker);
  for (auto& [id, n] : nodes_) {
    for (const auto role : both_roles) {
      if (std::erase(n.of(role).workers, worker) == 0 || !n.of(role).workers.empty()) continue;
      n.of(role).now = role_step::rests;
      // What is left of it plays the role that it can.
      if (!n.of(other_of(role)).workers.empty()) set(id, other_of(role), role_step::plays, cluster, now_);
    }
  }
  even_out(cluster, now_);
}

void elastic_roles::reported(worker_id worker, const instance_load& load, time_point now) {
  if (options_.on) watch_.reported(worker, load, now);
}

std::uint32_t elastic_roles::players(worker_role role, node_id but) const {
  std::uint32_t count = 0;
  for (const auto& [id, n] : nodes_) {
    const auto& s = n.of(role);
    if (id != but && s.now == role_step::plays) ++count;
  }
  return count;
}

std::uint32_t elastic_roles::charged(const side& s, const cluster_state& cluster) const {
  std::uint32_t sum = 0;
  for (const auto w : s.workers)
    if (const auto v = cluster.view(w, now_)) sum += v->charged;
  return sum;
}

void elastic_roles::set(node_id node, worker_role role, role_step next, cluster_state& cluster,
                        time_point now) {
  auto& s = nodes_.at(node).of(role);
  const auto state = next == role_step::plays    ? instance_state::live
                     : next == role_step::leaves ? instance_state::draining
                                                 : instance_state::joining;
  for (const auto w : s.workers) (void)cluster.set_state(w, state);
  if (std::exchange(s.now, next) == next) return;
  s.since = now;
  changes_.push_back({node, role, next, watch_.seen().prefill.load, watch_.seen().decode.load});
}

// ---- a role that nobody plays, and one too many ----

void elastic_roles::even_out(cluster_state& cluster, time_point now) {
  if (!options_.on) return;
  for (const auto role : both_roles)
    if (players(role) == 0) stand_in(role, cluster, now);
  for (auto& [id, n] : nodes_) {
    if (!n.has_both() || !n.plays_both()) continue;
    const auto prompts = players(worker_role::prefill, id);
    const auto answers = players(worker_role::decode, id);
    if (prompts == 0 && answers == 0) continue;
    const auto gives = prompts >= answers ? worker_role::prefill : worker_role::decode;
    set(id, gives, role_step::leaves, cluster, now);
  }
}

/// One that is leaving the role stays; else the one with the least to do takes it beside its own.
void elastic_roles::stand_in(worker_role role, cluster_state& cluster, time_point now) {
  const auto cost = [&](const auto& entry) {
    const auto& n = entry.second;
    const bool leaving = n.of(role).now == role_step::leaves;
    return std::pair{leaving ? 0 : 1, charged(n.of(other_of(role)), cluster)};
  };
  auto best = nodes_.end();
  for (auto i = nodes_.begin(); i != nodes_.end(); ++i)
    if (i->second.has_both() && (best == nodes_.end() || cost(*i) < cost(*best))) best = i;
  if (best != nodes_.end()) set(best->first, role, role_step::plays, cluster, now);
}

// ---- changes ----

bool elastic_roles::is_done(const side& s, const cluster_state& cluster) const {
  return charged(s, cluster) == 0 && std::ranges::all_of(s.workers, [&](worker_id w) {
           const auto* told = watch_.of(w);
           return told && told->at > s.since && told->load.running == 0 && told->load.waiting == 0;
         });
}

void elastic_roles::end_changes(cluster_state& cluster, time_point now) {
  for (auto& [id, n] : nodes_) {
    for (const auto role : both_roles) {
      if (n.of(role).now != role_step::leaves || !is_done(n.of(role), cluster)) continue;
      set(id, role, role_step::rests, cluster, now);
      if (n.of(other_of(role)).now != role_step::plays)
        set(id, other_of(role), role_step::plays, cluster, now);
    }
  }
}

/// A node is taken to play the role in which it computed last.
void elastic_roles::follow(cluster_state& cluster, time_point now) {
  const auto worked = [&](const side& s) {
    time_point last{};
    for (const auto w : s.workers)
      if (const auto* told = watch_.of(w)) last = std::max(last, told->worked);
    return last;
  };
  for (auto& [id, n] : nodes_) {
    if (!n.has_both()) continue;
    const auto prompts = worked(n.prefill), answers = worked(n.decode);
    if (prompts == answers) continue;
    const auto plays = prompts > answers ? worker_role::prefill : worker_role::decode;
    set(id, plays, role_step::plays, cluster, now);
    set(id, other_of(plays), role_step::rests, cluster, now);
  }
  even_out(cluster, now);
}

bool elastic_roles::is_spent(time_point now) {
  while (!begun_.empty() && now - begun_.front() >= std::chrono::hours(1)) begun_.pop_front();
  return options_.budget > 0 && begun_.size() >= options_.budget;
}

std::optional<node_id> elastic_roles::giver(worker_role role, const cluster_state& cluster) const {
  std::optional<node_id> best;
  std::uint32_t least = 0;
  for (const auto& [id, n] : nodes_) {
    const auto& s = n.of(role);
    if (!n.has_both() || s.now != role_step::plays) continue;
    const auto has = charged(s, cluster);
    if (best && has >= least) continue;
    best = id;
    least = has;
  }
  return best;
}

void elastic_roles::decide(cluster_state& cluster, time_point now, bool leads) {
  now_ = std::max(now_, now);
  if (!options_.on) return;
  if (!leads) return follow(cluster, now);
  end_changes(cluster, now);
  even_out(cluster, now);
  if (watch_.since_look(now).value_or(options_.hold) < options_.hold / 2) return;
  const auto& loads = watch_.look(cluster, now, 2 * rule_.hold(now));
  // One at a time: the loads of a change under way are not yet what they will be.
  const bool changing = std::ranges::any_of(nodes_, [](const auto& entry) {
    const auto& n = entry.second;
    return n.prefill.now == role_step::leaves || n.decode.now == role_step::leaves;
  });
  if (changing || is_spent(now)) return;
  // Whole nodes change, whatever their number of instances.
  const auto gives =
      rule_.decide({loads.prefill.load, loads.prefill_nodes}, {loads.decode.load, loads.decode_nodes}, now);
  const auto node = gives ? giver(*gives, cluster) : std::nullopt;
  if (!node) return;
  set(*node, *gives, role_step::leaves, cluster, now);
  if (options_.budget > 0) begun_.push_back(now);
}

std::vector<role_change> elastic_roles::take_changes() { return std::exchange(changes_, {}); }

}  // namespace mooncaf
