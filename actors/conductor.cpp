#include "actors/conductor.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/log.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(500);
constexpr std::size_t recent_limit = 64;

/// Who it is and where to call it. The handles of a node are learned from itself: those that come through a
/// third node are routed through that node, and never report the death of their process.
node_info introduction_of(const node_info& node) {
  node_info out;
  out.id = node.id;
  out.name = node.name;
  out.host = node.host;
  out.control_port = node.control_port;
  return out;
}

/// What decisions need to know of it.
member_card card_of(const node_info& node) {
  member_card out;
  out.id = node.id;
  out.has_shard = node.shard != nullptr;
  out.keeps_copies = node.keeper != nullptr;
  for (const auto& w : node.workers) {
    instance_desc desc;
    desc.id = w.id;
    desc.node = node.id;
    desc.role = w.role == worker_role::prefill ? instance_role::prefill : instance_role::decode;
    desc.capacity = w.capacity;
    desc.capacity_tokens = w.memory_tokens;
    desc.samples = as_timing_points(w.samples);
    out.workers.push_back(std::move(desc));
  }
  return out;
}

}  // namespace

conductor::conductor(caf::actor_config& config, conductor_setup setup)
    : conductor_actor::base(config),
      setup_(std::move(setup)),
      desk_(
          setup_.core, setup_.queue,
          [this](const schedule_job& job, const placement_msg& where) { remember(job, where); },
          std::move(setup_.journal)) {}

conductor_actor::behavior_type conductor::make_behavior() {
  outlive_stray_errors(*this);
  set_down_handler([this](const caf::down_msg& down) {
    for (const auto& [id, m] : members_) {
      if (m.info.node.address() == down.source) return leave(id);
    }
  });
  started_ = clock().now();
  delayed_send(this, tick_interval, tick_atom_v);
  return {
      [this](join_atom, const node_info& node) { return join(node); },
      [this](schedule_atom, const schedule_job& job) { return schedule(job); },
      [this](event_atom, const request_event& e) {
        note(e);
        desk_.event(e, clock().now());
        act();
      },
      [this](blocks_atom, const block_event_batch& batch) {
        desk_.blocks(batch);
        act();
      },
      [this](keep_atom, node_id node, const block_keys_t& keys) {
        return desk_.core().kept_elsewhere(node, keys);
      },
      [this](report_atom, const node_report& message) { return report(message); },
      [this](status_atom) { return status(); },
      [this](tick_atom) {
        desk_.tick(clock().now());
        act();
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void conductor::on_exit() {
  desk_.close();
  act();
  members_.clear();
}

caf::result<std::vector<node_info>> conductor::join(const node_info& node) {
  if (node.fingerprint != setup_.fingerprint) {
    return to_caf(error{ec::incompatible, "the cluster serves " + setup_.model + " (" + setup_.layout +
                                              "), node " + node.name + " has " + node.model + " (" +
                                              node.layout + ")"});
  }
  const auto now = clock().now();
  if (desk_.is_member(node.id)) leave(node.id);
  if (auto added = desk_.join(card_of(node), now); !added) return to_caf(added.error());
  std::vector<node_info> others;
  for (const auto& [id, m] : members_) others.push_back(introduction_of(m.info));
  member made;
  made.info = node;
  made.latest.node = node.id;
  made.seen = now;
  members_.emplace(node.id, std::move(made));
  act();
  monitor(node.node);
  log_info("joined", {{"member", node.name}, {"roles", node.roles}});
  return others;
}

void conductor::leave(node_id node) {
  desk_.leave(node, clock().now());
  act();
}

roster_msg conductor::report(const node_report& report) {
  const auto now = clock().now();
  const auto how = desk_.report(report, now);
  act();
  roster_msg out;
  out.member = how.member;
  out.version = how.version;
  out.news = how.news;
  if (!how.member) return out;
  auto& m = members_.at(report.node);
  m.latest = report;
  m.seen = now;
  if (!how.news) return out;
  for (const auto& [id, other] : members_) {
    if (id != report.node) out.others.push_back(introduction_of(other.info));
  }
  return out;
}

caf::result<placement_msg> conductor::schedule(const schedule_job& job) {
  const auto answer = make_response_promise<placement_msg>();
  const auto asked = next_question_++;
  questions_.emplace(asked, answer);
  desk_.ask(job, asked, clock().now());
  act();
  return answer;
}

void conductor::remember(const schedule_job& job, const placement_msg& where) {
  recent_.push_front({job.id.request, where, job.prompt_tokens});
  if (recent_.size() > recent_limit) recent_.pop_back();
}

void conductor::note(const request_event& e) {
  const auto entry = std::ranges::find(recent_, e.id.request, &recent::id);
  if (entry == recent_.end()) return;
  entry->stage = e.stage;
  if (e.stage == request_stage::first_token) {
    entry->ttft_ns = e.ttft_ns;
    entry->compute_ns = e.compute_ns;
    entry->cached_tokens = e.cached_tokens;
  } else {
    entry->output_tokens = e.output_tokens;
  }
}

void conductor::act() {
  for (auto& action : desk_.take_actions()) {
    std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void conductor::carry_out(answer_question& what) {
  if (auto asked = questions_.extract(what.asked)) asked.mapped().deliver(std::move(what.where));
}

void conductor::carry_out(const follow_shard& what) {
  const auto m = members_.find(what.node);
  if (m == members_.end() || !m->second.info.shard) return;
  send(caf::actor_cast<cache_shard_actor>(m->second.info.shard), follow_atom_v,
       caf::actor_cast<caf::actor>(conductor_actor{this}));
}

void conductor::carry_out(copy_blocks& what) {
  const auto m = members_.find(what.target);
  if (m == members_.end() || !m->second.info.keeper) return;
  send(caf::actor_cast<pool_keeper_actor>(m->second.info.keeper), keep_atom_v, std::move(what.order));
}

void conductor::carry_out(const member_left& what) {
  const auto i = members_.find(what.node);
  if (i == members_.end()) return;
  log_warn("left", {{"member", i->second.info.name}});
  demonitor(i->second.info.node.address());
  members_.erase(i);
}

/// The last resort: charges go with their gateway's membership.
void conductor::carry_out(const charge_expired& what) {
  log_warn("expired", {{"charge", to_string(what.charge)}});
}

std::string conductor::name_of(worker_id worker) const {
  for (const auto& [id, m] : members_) {
    std::size_t prefill = 0, decode = 0;
    for (const auto& w : m.info.workers) {
      auto& n = w.role == worker_role::prefill ? prefill : decode;
      if (w.id == worker) {
        return m.info.name + "/" + (w.role == worker_role::prefill ? "prefill-" : "decode-") +
               std::to_string(n);
      }
      ++n;
    }
  }
  return "gone";
}

std::string conductor::status() const {
  using json = nlohmann::ordered_json;
  const auto now = clock().now();
  json out;
  const auto& totals = desk_.totals();
  out["model"] = setup_.model;
  out["uptime_s"] = to_seconds(now - started_);
  out["index"] = {{"blocks", desk_.core().index().size()},
                  {"bytes", desk_.core().index().memory_bytes()},
                  {"resyncs", totals.gaps}};
  const auto& counts = desk_.core().counts();
  out["counters"] = {{"placed", counts.placed},
                     {"finished", totals.finished},
                     {"failed", totals.failed},
                     {"cancelled", totals.cancelled},
                     {"rejected_queue_full", desk_.questions().queue().refused()},
                     {"rejected_at_decode", totals.refused_at_decode},
                     {"wasted_prefill_tokens", totals.wasted_tokens},
                     {"rejected_ttft", counts.rejected_ttft},
                     {"rejected_tbt", counts.rejected_tbt},
                     {"rejected_memory", counts.rejected_memory},
                     {"rejected_unavailable", counts.rejected_unavailable},
                     {"fetches", counts.fetches},
                     {"hot_copies", counts.hot_copies},
                     {"prompt_tokens", totals.prompt_tokens},
                     {"cached_tokens", totals.cached_tokens},
                     {"output_tokens", totals.output_tokens},
                     {"charged_requests", desk_.core().charged_requests()}};
  out["queue"] = {{"waiting", desk_.questions().queue().size()},
                  {"limit", desk_.questions().queue().options().max_queued}};
  out["instances"] = json::array();
  out["shards"] = json::array();
  out["devices"] = json::array();
  out["paths"] = json::array();
  out["rails"] = json::array();
  out["nodes"] = json::array();
  std::uint64_t live = 0;
  // Each request once, however many instances have to do with it: every one that is placed is at one decode
  // instance, where it runs, or waits for its prompt's KV.
  std::uint64_t running = 0, waiting = 0;
  for (const auto& [id, m] : members_) {
    out["nodes"].push_back({{"name", m.info.name},
                            {"roles", m.info.roles},
                            {"host", m.info.host},
                            {"silent_s", to_seconds(now - m.seen)},
                            {"requests", m.latest.requests_live}});
    live += m.latest.requests_live;
    for (const auto& w : m.latest.workers) {
      const auto role = std::ranges::find(m.info.workers, w.id, &worker_info::id);
      if (role == m.info.workers.end()) continue;
      if (role->role == worker_role::decode) {
        running += w.running;
        waiting += w.waiting;
      }
      out["instances"].push_back({{"name", name_of(w.id)},
                                  {"role", role->role == worker_role::prefill ? "prefill" : "decode"},
                                  {"node", m.info.name},
                                  {"state", w.failure.empty() ? "live" : "failed"},
                                  {"reason", w.failure},
                                  {"running", w.running},
                                  {"waiting", w.waiting},
                                  {"context_tokens", w.context_tokens},
                                  {"step_ms", static_cast<double>(w.step_ns) * 1e-6},
                                  {"load", desk_.core().load_of(w.id, now)}});
    }
    if (m.latest.has_shard) {
      const auto& s = m.latest.shard;
      const auto index = desk_.core().cluster().index_of(id);
      out["shards"].push_back({{"node", m.info.name},
                               {"indexed", index ? desk_.core().index().held_blocks(*index) : 0},
                               {"slots_total", s.slots_total},
                               {"slots_free", s.slots_free},
                               {"slots_reserved", s.slots_reserved},
                               {"slots_committed", s.slots_committed},
                               {"slots_pinned", s.slots_pinned},
                               {"slots_private", s.slots_private},
                               {"slots_quarantined", s.slots_quarantined},
                               {"slots_withheld", s.slots_withheld},
                               {"owners", s.owners},
                               {"ssd_blocks", s.ssd_blocks},
                               {"ssd_bytes", s.ssd_bytes},
                               {"ssd_capacity_bytes", s.ssd_capacity_bytes},
                               {"ssd_written_bytes", s.ssd_written_bytes},
                               {"ssd_copies", s.ssd_copies},
                               {"ssd_evictions", s.ssd_evictions},
                               {"ssd_copies_dropped", s.ssd_copies_dropped},
                               {"ssd_last_copies_kept", s.ssd_last_copies_kept},
                               {"evictions", s.evictions},
                               {"evictions_lost", s.evictions_lost},
                               {"ssd_read_bytes", s.ssd_read_bytes},
                               {"hits_device", s.hits_device},
                               {"hits_dram", s.hits_dram},
                               {"hits_ssd", s.hits_ssd},
                               {"hits_remote", s.hits_remote},
                               {"misses", s.misses},
                               {"ssd_read_bytes_per_s", s.ssd_read_bytes_per_s},
                               {"consistent", s.consistent}});
    }
    if (const auto& d = m.latest.device; d.blocks > 0)
      out["devices"].push_back({{"node", m.info.name},
                                {"blocks", d.blocks},
                                {"blocks_used", d.blocks_used},
                                {"hit_tokens", d.hit_tokens},
                                {"loaded_tokens", d.loaded_tokens},
                                {"loaded_bytes", d.loaded_bytes},
                                {"stored_bytes", d.stored_bytes},
                                {"unwritten_blocks", d.unwritten_blocks},
                                {"lost_blocks", d.lost_blocks},
                                {"sent_bytes", d.sent_bytes},
                                {"unreached", d.unreached}});
    for (const auto& p : m.latest.moved.paths) {
      const auto peer = members_.find(p.peer);
      out["paths"].push_back({{"node", m.info.name},
                              {"peer", peer == members_.end() ? to_string(p.peer) : peer->second.info.name},
                              {"path", p.path},
                              {"bytes", p.bytes},
                              {"transfers", p.transfers},
                              {"retries", p.retries},
                              {"checksum_failures", p.checksum_failures},
                              {"control_messages", p.control_messages},
                              {"slices", p.slices},
                              {"failures", p.failures},
                              {"mean_ms", static_cast<double>(p.latency_ns) / 1e6},
                              {"learned_bytes_per_s", p.learned_bytes_per_s},
                              {"learned_latency_ms", static_cast<double>(p.learned_latency_ns) / 1e6}});
    }
    for (const auto& r : m.latest.moved.rails)
      out["rails"].push_back({{"node", m.info.name},
                              {"rail", r.name},
                              {"address", r.address},
                              {"up", r.up},
                              {"bytes", r.bytes},
                              {"slices", r.slices},
                              {"retries", r.retries},
                              {"failures", r.failures},
                              {"mean_ms", static_cast<double>(r.latency_ns) / 1e6},
                              {"last_error", r.last_error}});
  }
  out["requests_live"] = live;
  out["requests"] = {{"running", running}, {"waiting", waiting + desk_.questions().queue().size()}};
  out["broken_links"] = json::array();
  for (const auto& [a, b] : desk_.core().broken().all()) {
    const auto one = members_.find(a), other = members_.find(b);
    if (one == members_.end() || other == members_.end()) continue;
    out["broken_links"].push_back({one->second.info.name, other->second.info.name});
  }
  out["recent"] = json::array();
  for (const auto& r : recent_) {
    const auto source = members_.find(r.where.source);
    out["recent"].push_back({{"request", to_string(r.id)},
                             {"prefill", name_of(r.where.prefill)},
                             {"decode", name_of(r.where.decode)},
                             {"prompt_tokens", r.prompt_tokens},
                             {"cached_tokens", r.cached_tokens},
                             {"output_tokens", r.output_tokens},
                             {"source", source == members_.end() ? "" : source->second.info.name},
                             {"predicted_ttft_ms", static_cast<double>(r.where.predicted_ttft_ns) * 1e-6},
                             {"ttft_ms", static_cast<double>(r.ttft_ns) * 1e-6},
                             {"prefill_ms", static_cast<double>(r.compute_ns) * 1e-6}});
  }
  return out.dump();
}

}  // namespace mooncaf
