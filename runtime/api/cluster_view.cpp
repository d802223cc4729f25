#include "runtime/api/cluster_view.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/units.hpp"
#include "runtime/request/status_fields.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

double in_ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

/// Adds every member that people see.
template <class S>
json with_fields(json out, const S& status) {
  for_each_shown(status, [&](const auto& line, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::int64_t>) {
      if (line.time) {
        out[line.key] = in_ms(value);
        return;
      }
    }
    out[line.key] = value;
  });
  return out;
}

/// The names of members and workers, by their ids.
class names {
 public:
  explicit names(const cluster_status& cluster) : members_(cluster.members) {}

  const member_status* find(node_id node) const {
    const auto m = std::ranges::find(members_, node, &member_status::id);
    return m == members_.end() ? nullptr : &*m;
  }
  std::string of(node_id node, const std::string& unknown) const {
    const auto* m = find(node);
    return m ? m->name : unknown;
  }
  /// "node/prefill-0": its place among the workers of its role.
  std::string of(worker_id worker) const {
    for (const auto& m : members_) {
      std::size_t prefill = 0, decode = 0;
      for (const auto& w : m.workers) {
        auto& n = w.role == worker_role::prefill ? prefill : decode;
        if (w.id == worker) return m.name + "/" + std::string{to_string(w.role)} + "-" + std::to_string(n);
        ++n;
      }
    }
    return "gone";
  }

 private:
  const std::vector<member_status>& members_;
};

/// The worker that reported this, as the conductor sees it; null if it is none of the member's.
const worker_standing* standing_of(const member_status& m, worker_id worker) {
  const auto known = std::ranges::find(m.workers, worker, &worker_standing::id);
  return known == m.workers.end() ? nullptr : &*known;
}

std::string_view state_of(const member_status& m, const worker_load& w, instance_state known) {
  if (!w.failure.empty()) return "failed";
  return to_string(m.latest.draining ? instance_state::draining : known);
}

void add_instances(json& out, const member_status& m, const names& names) {
  for (const auto& w : m.latest.workers) {
    const auto* standing = standing_of(m, w.id);
    if (!standing) continue;
    auto entry = with_fields({{"name", names.of(w.id)},
                              {"role", to_string(standing->role)},
                              {"node", m.name},
                              {"state", state_of(m, w, standing->state)}},
                             w);
    entry["load"] = std::bit_cast<double>(standing->load_bits);
    out["instances"].push_back(std::move(entry));
  }
}

void add_member(json& out, const member_status& m, const names& names) {
  const auto& r = m.latest;
  out["nodes"].push_back({{"name", m.name},
                          {"roles", m.roles},
                          {"host", m.host},
                          {"silent_s", to_seconds(duration{m.silent_ns})},
                          {"draining", r.draining},
                          {"release", r.release},
                          {"speaks", r.speaks},
                          {"requests", r.requests_live}});
  add_instances(out, m, names);
  if (r.has_shard)
    out["shards"].push_back(with_fields({{"node", m.name}, {"indexed", m.indexed_blocks}}, r.shard));
  if (r.device.blocks > 0) out["devices"].push_back(with_fields({{"node", m.name}}, r.device));
  for (const auto& p : r.moved.paths)
    out["paths"].push_back(with_fields({{"node", m.name}, {"peer", names.of(p.peer, to_string(p.peer))}}, p));
  for (const auto& rank : r.ranks) out["ranks"].push_back(with_fields({{"node", m.name}}, rank));
  for (const auto& rail : r.moved.rails) out["rails"].push_back(with_fields({{"node", m.name}}, rail));
}

/// Each request once, however many instances have to do with it: every one that is placed is at one decode
/// instance, where it runs, or waits for its prompt's KV.
json requests_of(const cluster_status& cluster) {
  std::uint64_t running = 0, waiting = cluster.queue.waiting;
  for (const auto& m : cluster.members) {
    for (const auto& w : m.latest.workers) {
      const auto* standing = standing_of(m, w.id);
      if (!standing || standing->role != worker_role::decode) continue;
      running += w.running;
      waiting += w.waiting;
    }
  }
  return {{"running", running}, {"waiting", waiting}};
}

std::uint64_t requests_live(const cluster_status& cluster) {
  std::uint64_t live = 0;
  for (const auto& m : cluster.members) live += m.latest.requests_live;
  return live;
}

json shares_of(const std::vector<played_share>& played) {
  auto out = json::array();
  for (const auto& p : played)
    out.push_back({{"with", p.with}, {"inside_slos", std::bit_cast<double>(p.share_bits)}});
  return out;
}

json recent_of(const recent_request& r, const names& names) {
  return {{"request", to_string(r.id)},       {"prefill", names.of(r.prefill)},
          {"decode", names.of(r.decode)},     {"prompt_tokens", r.prompt_tokens},
          {"cached_tokens", r.cached_tokens}, {"output_tokens", r.output_tokens},
          {"source", names.of(r.source, "")}, {"predicted_ttft_ms", in_ms(r.predicted_ttft_ns)},
          {"ttft_ms", in_ms(r.ttft_ns)},      {"prefill_ms", in_ms(r.compute_ns)}};
}

}  // namespace

/// In the order of the page that shows it.
result<std::string> cluster_json(const cluster_status& cluster) {
  const names names{cluster};
  json out;
  out["model"] = cluster.model;
  out["uptime_s"] = to_seconds(duration{cluster.uptime_ns});
  out["index"] = with_fields({}, cluster.index);
  out["counters"] = with_fields({}, cluster.counters);
  out["queue"] = with_fields({}, cluster.queue);
  const auto& admission = cluster.admission;
  out["admission"] = {{"rule", admission.rule},
                      {"changes", admission.changes},
                      {"played", shares_of(admission.played)},
                      {"what_ifs", shares_of(admission.what_ifs)}};
  const auto& lead = cluster.lead;
  out["leader"] = {{"node", lead.leader}, {"term", lead.term},     {"standbys", lead.standbys},
                   {"votes", lead.votes}, {"voters", lead.voters}, {"problem", lead.problem}};
  for (const auto* list : {"instances", "ranks", "shards", "devices", "paths", "rails", "nodes"})
    out[list] = json::array();
  for (const auto& m : cluster.members) add_member(out, m, names);
  out["requests_live"] = requests_live(cluster);
  out["requests"] = requests_of(cluster);
  out["broken_links"] = json::array();
  for (const auto& [one, other] : cluster.broken_links) {
    const auto *a = names.find(one), *b = names.find(other);
    if (a && b) out["broken_links"].push_back({a->name, b->name});
  }
  out["recent"] = json::array();
  for (const auto& r : cluster.recent) out["recent"].push_back(recent_of(r, names));
  return out.dump();
}

result<std::string> health_of(const cluster_status& cluster) {
  if (!cluster.lead.problem.empty()) return fail(ec::unavailable, cluster.lead.problem);
  bool prefill = false, decode = false;
  for (const auto& m : cluster.members) {
    for (const auto& w : m.latest.workers) {
      const auto* standing = standing_of(m, w.id);
      if (!standing || state_of(m, w, standing->state) != "live") continue;
      prefill = prefill || standing->role == worker_role::prefill;
      decode = decode || standing->role == worker_role::decode;
    }
  }
  if (!prefill) return fail(ec::unavailable, "no live prefill instance");
  if (!decode) return fail(ec::unavailable, "no live decode instance");
  return R"({"status":"ok"})";
}

result<std::string> scrape_targets(const cluster_status& cluster) {
  auto out = json::array();
  const auto add = [&](const std::string& at, const std::string& process, const std::string& roles) {
    if (!at.empty()) out.push_back({{"targets", {at}}, {"labels", {{"process", process}, {"roles", roles}}}});
  };
  for (const auto& m : cluster.members) {
    add(m.latest.metrics, m.name, m.roles);
    for (const auto& rank : m.latest.ranks) add(rank.metrics, rank.name, "rank");
  }
  return out.dump();
}

result<std::string> integrity_of(const cluster_status& cluster) {
  shard_status sum;
  for (const auto& m : cluster.members) {
    if (!m.latest.has_shard) continue;
    const auto& s = m.latest.shard;
    sum.slots_reserved += s.slots_reserved;
    sum.slots_pinned += s.slots_pinned - std::min(s.slots_pinned, s.slots_kept);  // no request's
    sum.slots_private += s.slots_private;
    sum.slots_quarantined += s.slots_quarantined;
    sum.owners += s.owners;
    sum.consistent = sum.consistent && s.consistent;
  }
  json out = {{"requests", requests_live(cluster)},
              {"charges", cluster.counters.charged_requests},
              {"reserved", sum.slots_reserved},
              {"pinned", sum.slots_pinned},
              {"private", sum.slots_private},
              {"quarantined", sum.slots_quarantined},
              {"owners", sum.owners}};
  const bool idle = sum.consistent && std::ranges::all_of(out, [](const json& held) { return held == 0; });
  out["consistent"] = sum.consistent;
  out["idle"] = idle;
  return out.dump();
}

}  // namespace mooncaf
