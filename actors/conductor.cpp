#include "actors/conductor.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "actors/conversions.hpp"
#include "actors/log.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/sched/pool_writes.hpp"

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

/// A node that stores and does not compute: it keeps copies of what the others make.
bool is_pool(const node_info& node) { return node.keeper && node.workers.empty(); }

holder_tier as_tier(block_tier tier) {
  return tier == block_tier::dram ? holder_tier::dram : holder_tier::ssd;
}

}  // namespace

conductor::conductor(caf::actor_config& config, conductor_setup setup)
    : conductor_actor::base(config),
      setup_(std::move(setup)),
      core_(setup_.core),
      desk_(core_, setup_.queue,
            [this](const schedule_job& job, const placement_msg& where) { remember(job, where); }) {
  if (setup_.journal) core_.record_to(std::move(setup_.journal));
}

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
      [this](event_atom, const request_event& e) { event(e); },
      [this](blocks_atom, const block_event_batch& batch) { blocks(batch); },
      [this](report_atom, const node_report& message) { return report(message); },
      [this](status_atom) { return status(); },
      [this](tick_atom) {
        tick();
        desk_.tick(clock().now());
        core_.flush_journal();
        delayed_send(this, tick_interval, tick_atom_v);
      },
  };
}

void conductor::on_exit() {
  members_.clear();
  desk_.close();
  core_.flush_journal();
}

void conductor::learn_prices(const node_report& report) {
  if (report.has_shard) {
    core_.disk_measured(report.node, static_cast<double>(report.shard.ssd_read_bytes_per_s));
    core_.memory_of(report.node, report.shard.slots_total);
  }
  for (const auto& p : report.moved.paths) {
    if (p.preferred)
      core_.link_measured(report.node, p.peer, static_cast<double>(p.learned_bytes_per_s),
                          duration{p.learned_latency_ns});
  }
}

caf::result<std::vector<node_info>> conductor::join(const node_info& node) {
  if (node.fingerprint != setup_.fingerprint) {
    return to_caf(error{ec::incompatible, "the cluster serves " + setup_.model + " (" + setup_.layout +
                                              "), node " + node.name + " has " + node.model + " (" +
                                              node.layout + ")"});
  }
  if (members_.contains(node.id)) leave(node.id);
  if (auto added = core_.add_node(node.id, clock().now()); !added) return to_caf(added.error());
  std::vector<node_info> others;
  for (const auto& [id, m] : members_) others.push_back(introduction_of(m.info));
  member made;
  made.info = node;
  made.latest.node = node.id;
  made.seen = clock().now();
  for (const auto& w : node.workers) {
    instance_desc desc;
    desc.id = w.id;
    desc.node = node.id;
    desc.role = w.role == worker_role::prefill ? instance_role::prefill : instance_role::decode;
    desc.capacity = w.capacity;
    desc.capacity_tokens = w.memory_tokens;
    desc.samples = as_timing_points(w.samples);
    core_.add_instance(desc);
  }
  members_.emplace(node.id, std::move(made));
  if (is_pool(node)) {
    // What others hold already is offered to it, too: their snapshots name it.
    for (const auto& [id, m] : members_) {
      if (m.info.shard && !is_pool(m.info)) follow(m.info.shard);
    }
  }
  ++roster_;
  monitor(node.node);
  log_info("joined", {{"member", node.name}, {"roles", node.roles}});
  return others;
}

void conductor::leave(node_id node) {
  const auto i = members_.find(node);
  if (i == members_.end()) return;
  core_.remove_node(node);
  forget(node);
}

void conductor::forget(node_id node) {
  const auto i = members_.find(node);
  if (i == members_.end()) return;
  log_warn("left", {{"member", i->second.info.name}});
  demonitor(i->second.info.node.address());
  members_.erase(i);
  ++roster_;
}

roster_msg conductor::report(const node_report& report) {
  roster_msg out;
  out.version = roster_;
  const auto i = members_.find(report.node);
  if (i == members_.end()) return out;
  out.member = true;
  const auto now = clock().now();
  i->second.latest = report;
  i->second.seen = now;
  core_.heartbeat(report.node, now);
  core_.unreachable(report.node, report.unreachable);
  for (const auto& w : report.workers) {
    const timed_step step{w.steps, w.step_batch, w.step_context_tokens, duration{w.step_ns}};
    core_.report(w.id, {w.running, w.waiting, w.context_tokens, step});
  }
  learn_prices(report);
  desk_.advance(now);
  out.news = report.roster != roster_;
  if (!out.news) return out;
  for (const auto& [id, m] : members_) {
    if (id != report.node) out.others.push_back(introduction_of(m.info));
  }
  return out;
}

caf::result<placement_msg> conductor::schedule(const schedule_job& job) {
  if (job.gateway && !members_.contains(job.gateway)) {
    // Nobody would ever give back what it is charged for.
    placement_msg refused;
    refused.id = job.id;
    refused.rejection = {ec::unavailable, "the gateway is no member of the cluster at present"};
    refused.retry_after_ns = duration{std::chrono::seconds(1)}.count();
    return refused;
  }
  const auto answer = make_response_promise<placement_msg>();
  desk_.ask(job, answer, clock().now());
  return answer;
}

void conductor::remember(const schedule_job& job, const placement_msg& where) {
  recent_.push_front({job.id.request, where, job.prompt_tokens});
  if (recent_.size() > recent_limit) recent_.pop_back();
}

void conductor::event(const request_event& e) {
  const auto now = clock().now();
  const auto entry = std::ranges::find(recent_, e.id.request, &recent::id);
  if (entry != recent_.end()) {
    entry->stage = e.stage;
    if (e.stage == request_stage::first_token) {
      entry->ttft_ns = e.ttft_ns;
      entry->compute_ns = e.compute_ns;
      entry->cached_tokens = e.cached_tokens;
    } else {
      entry->output_tokens = e.output_tokens;
    }
  }
  if (e.stage == request_stage::first_token) {
    core_.first_token(schedule_desk::charge_id(e.id), e.new_tokens, e.cached_tokens, duration{e.compute_ns},
                      now);
    prompt_tokens_ += e.new_tokens + e.cached_tokens;
    cached_tokens_ += e.cached_tokens;
  } else if (e.stage != request_stage::prefill_started) {
    over(e);
  }
  desk_.advance(now);
}

/// Each kind of end teaches what it shows: only an answer that came to its end tells how long answers take.
void conductor::over(const request_event& e) {
  const auto now = clock().now();
  const auto id = schedule_desk::charge_id(e.id);
  output_tokens_ += e.output_tokens;
  const auto charged = core_.charged_requests();
  const bool waited = desk_.withdraw(e.id);
  switch (e.stage) {
    case request_stage::finished:
      ++finished_;
      return core_.finished(id, now, e.output_tokens);
    case request_stage::cancelled:
      core_.cancelled(id, now);
      // Gateways say so of late answers, too, which may have been charged or not.
      cancelled_ += waited || core_.charged_requests() < charged;
      return;
    case request_stage::refused:
      ++refused_at_decode_;
      wasted_tokens_ += e.wasted_tokens;
      [[fallthrough]];
    default:
      ++failed_;
      return core_.failed(id, now);
  }
}

void conductor::blocks(const block_event_batch& batch) {
  const auto i = members_.find(batch.node);
  if (i == members_.end()) return;
  auto& m = i->second;
  switch (batch.snapshot ? m.stream.snapshot(batch.first_seq, batch.part)
                         : m.stream.apply(batch.first_seq, batch.events.size())) {
    case stream_verdict::replace:
      core_.forget_blocks(batch.node);
      break;
    case stream_verdict::apply:
      break;
    case stream_verdict::stale:
      return;
    case stream_verdict::gap:
      // What is known of this node may name blocks that are gone. Ask for everything, once.
      ++gaps_;
      if (m.info.shard) follow(m.info.shard);
      return;
  }
  for (const auto& e : batch.events) {
    if (e.what == block_change::removed) {
      core_.block_gone(batch.node, e.key);
    } else {
      core_.block_held(batch.node, e.key, as_tier(e.tier));
    }
  }
  if (!is_pool(m.info)) offer(batch);
}

void conductor::follow(const caf::actor& shard) {
  send(caf::actor_cast<cache_shard_actor>(shard), follow_atom_v,
       caf::actor_cast<caf::actor>(conductor_actor{this}));
}

void conductor::offer(const block_event_batch& batch) {
  std::vector<node_id> pool;
  for (const auto& [id, m] : members_) {
    if (is_pool(m.info)) pool.push_back(id);
  }
  if (pool.empty()) return;
  std::vector<announced_block> stored;
  std::vector<block_event_msg> events;
  for (const auto& e : batch.events) {
    if (e.what != block_change::stored || e.tier != block_tier::dram) continue;
    stored.push_back({e.key, e.parent});
    events.push_back(e);
  }
  std::vector<announced_block> blocks;
  std::vector<block_event_msg> ordered;
  for (const auto i : in_chains(stored)) {
    blocks.push_back(stored[i]);
    ordered.push_back(events[i]);
  }
  const auto holds = [this](node_id node, const block_key& key) {
    const auto index = core_.cluster().index_of(node);
    return index && core_.index().matched_blocks(*index, {&key, 1}) == 1;
  };
  for (const auto& w : plan_pool_writes(blocks, pool, holds)) {
    const auto first = ordered.begin() + static_cast<std::ptrdiff_t>(w.first);
    send(caf::actor_cast<pool_keeper_actor>(members_.at(w.target).info.keeper), keep_atom_v,
         keep_order{batch.node, {first, first + static_cast<std::ptrdiff_t>(w.count)}});
  }
}

void conductor::tick() {
  // A node that is cut off without its link closing says nothing for long; the heartbeat of the link is the
  // first to notice, this is the second. Whoever is dropped and alive is told so with its next report.
  const auto expired = core_.expire(clock().now());
  for (const auto id : expired.nodes) forget(id);
  for (const auto id : expired.requests) log_warn("expired", {{"charge", to_string(id)}});
  copy_hot_blocks();
}

void conductor::copy_hot_blocks() {
  for (const auto& copy : core_.copy_hot_blocks(clock().now())) {
    const auto target = members_.find(copy.target);
    if (target == members_.end() || !target->second.info.keeper) continue;
    keep_order order;
    order.source = copy.source;
    for (const auto& b : copy.blocks) order.blocks.push_back({b.key, b.parent, b.depth});
    send(caf::actor_cast<pool_keeper_actor>(target->second.info.keeper), keep_atom_v, std::move(order));
  }
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
  out["model"] = setup_.model;
  out["uptime_s"] = to_seconds(now - started_);
  out["index"] = {
      {"blocks", core_.index().size()}, {"bytes", core_.index().memory_bytes()}, {"resyncs", gaps_}};
  const auto& counts = core_.counts();
  out["counters"] = {{"placed", counts.placed},
                     {"finished", finished_},
                     {"failed", failed_},
                     {"cancelled", cancelled_},
                     {"rejected_queue_full", desk_.queue().refused()},
                     {"rejected_at_decode", refused_at_decode_},
                     {"wasted_prefill_tokens", wasted_tokens_},
                     {"rejected_ttft", counts.rejected_ttft},
                     {"rejected_tbt", counts.rejected_tbt},
                     {"rejected_memory", counts.rejected_memory},
                     {"rejected_unavailable", counts.rejected_unavailable},
                     {"fetches", counts.fetches},
                     {"hot_copies", counts.hot_copies},
                     {"prompt_tokens", prompt_tokens_},
                     {"cached_tokens", cached_tokens_},
                     {"output_tokens", output_tokens_},
                     {"charged_requests", core_.charged_requests()}};
  out["queue"] = {{"waiting", desk_.queue().size()}, {"limit", desk_.queue().options().max_queued}};
  out["instances"] = json::array();
  out["shards"] = json::array();
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
                                  {"running", w.running},
                                  {"waiting", w.waiting},
                                  {"context_tokens", w.context_tokens},
                                  {"step_ms", static_cast<double>(w.step_ns) * 1e-6},
                                  {"load", core_.load_of(w.id, now)}});
    }
    if (m.latest.has_shard) {
      const auto& s = m.latest.shard;
      const auto index = core_.cluster().index_of(id);
      out["shards"].push_back({{"node", m.info.name},
                               {"indexed", index ? core_.index().held_blocks(*index) : 0},
                               {"slots_total", s.slots_total},
                               {"slots_free", s.slots_free},
                               {"slots_reserved", s.slots_reserved},
                               {"slots_committed", s.slots_committed},
                               {"slots_pinned", s.slots_pinned},
                               {"slots_private", s.slots_private},
                               {"slots_quarantined", s.slots_quarantined},
                               {"owners", s.owners},
                               {"ssd_blocks", s.ssd_blocks},
                               {"ssd_bytes", s.ssd_bytes},
                               {"evictions", s.evictions},
                               {"hits_dram", s.hits_dram},
                               {"hits_ssd", s.hits_ssd},
                               {"hits_remote", s.hits_remote},
                               {"misses", s.misses},
                               {"ssd_read_bytes_per_s", s.ssd_read_bytes_per_s},
                               {"consistent", s.consistent}});
    }
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
  out["requests"] = {{"running", running}, {"waiting", waiting + desk_.queue().size()}};
  out["broken_links"] = json::array();
  for (const auto& [a, b] : core_.broken().all()) {
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
