#include "runtime/request/cluster_core.hpp"

#include <algorithm>
#include <bit>

#include "runtime/sched/pool_writes.hpp"

namespace mooncaf {

namespace {

using namespace std::chrono_literals;

/// A block that lies in a device alone is as near as memory: the device uses it there, and the node brings it
/// to memory for a node that fetches it.
storage_tier served_from(storage_tier tier) {
  return tier == storage_tier::ssd ? storage_tier::ssd : storage_tier::dram;
}

std::string loads_text(double prefill, double decode) {
  return "prefill " + std::to_string(prefill) + ", decode " + std::to_string(decode);
}

member_status introduction_of(const member_card& node) {
  member_status out;
  out.id = node.id;
  out.name = node.name;
  out.roles = node.roles;
  out.host = node.host;
  for (const auto& w : node.workers) out.workers.push_back({w.id, w.role});
  return out;
}

}  // namespace

cluster_core::cluster_core(const conductor_options& core, admission_queue_options queue,
                           journal::sink journal, leadership_core lead)
    : scheduler_(journal_, core),
      queue_(journal_, scheduler_, queue),
      questions_(scheduler_, queue_,
                 [this](const schedule_job& job, const placement_msg& where) { board_.placed(job, where); }),
      lead_(std::move(lead)) {
  if (journal) journal_.begin(scheduler_.options(), queue, std::move(journal));
}

std::vector<conductor_action> cluster_core::take_actions() {
  for (auto& [asked, where] : questions_.take_answers()) {
    where.term = lead_.term();
    actions_.emplace_back(answer_question{asked, std::move(where)});
  }
  for (auto& [to, claim] : lead_.take_claims()) actions_.emplace_back(claim_lead{to, std::move(claim)});
  return std::exchange(actions_, {});
}

// ---- members ----

result<void> cluster_core::join(const member_card& node, time_point now) {
  if (is_member(node.id)) leave(node.id, now);
  if (auto added = scheduler_.add_node(node.id, now); !added) return added;
  for (const auto& worker : node.workers) scheduler_.add_instance(worker);
  members_.emplace(node.id, member{node, {}});
  board_.joined(introduction_of(node), now);
  lead_.joined(node.id, node.seat == 0 ? std::nullopt : std::optional{node.seat - 1});
  if (node.is_pool()) {
    // Blocks that other members hold already are offered to it, too: the members' snapshots name them.
    for (const auto& [id, m] : members_) {
      if (m.card.has_shard && !m.card.is_pool()) actions_.emplace_back(follow_shard{id});
    }
  }
  ++roster_;
  return {};
}

void cluster_core::leave(node_id node, time_point now) {
  if (!is_member(node)) return;
  scheduler_.remove_node(node);
  forget(node, now);
}

void cluster_core::forget(node_id node, time_point now) {
  if (!members_.erase(node)) return;
  board_.left(node);
  lead_.left(node);
  actions_.emplace_back(member_left{node});
  ++roster_;
  // Placing them now would charge what nobody gives back.
  questions_.forget_gateway(node);
  advance(now);
}

standing cluster_core::report(const node_report& message, time_point now) {
  const auto known = members_.find(message.node);
  if (known == members_.end()) return {false, roster_, false, false, false};
  auto& m = known->second;
  board_.reported(message, now);
  scheduler_.heartbeat(message.node, now);
  scheduler_.unreachable(message.node, message.unreachable);
  for (const auto& w : message.workers) {
    if (!w.failure.empty()) {
      drop_worker(message.node, w.id);
      continue;
    }
    const timed_step step{w.steps, w.step_batch, w.step_context_tokens, duration{w.step_ns}};
    scheduler_.report(w.id, {w.running, w.waiting, w.context_tokens, step, duration{w.busy_ns}, w.others},
                      now);
    if (!m.draining) follow_absence(m, w);
  }
  if (message.draining && !std::exchange(m.draining, true)) drain(message.node);
  learn_prices(message);
  advance(now);
  return {true, roster_, message.roster != roster_, m.draining, m.draining && last_of_a_role(m)};
}

bool cluster_core::last_of_a_role(const member& leaving) const {
  return std::ranges::any_of(leaving.card.workers, [&](const instance_desc& mine) {
    return std::ranges::none_of(members_, [&](const auto& other) {
      return !other.second.draining && std::ranges::any_of(other.second.card.workers, [&](const auto& w) {
        return w.role == mine.role;
      });
    });
  });
}

void cluster_core::drain(node_id node) {
  for (const auto& worker : members_.at(node).card.workers)
    (void)scheduler_.set_state(worker.id, instance_state::draining);
}

/// Nothing is placed on a worker that is away, until it says that it is back.
void cluster_core::follow_absence(member& m, const worker_load& worker) {
  const bool away = !worker.away.empty();
  if (away == m.away.contains(worker.id)) return;
  if (away) m.away.insert(worker.id);
  else m.away.erase(worker.id);
  (void)scheduler_.set_state(worker.id, away ? instance_state::draining : instance_state::live);
  actions_.emplace_back(log_turn{"worker", m.card.name, away ? "away" : "back", worker.away});
}

/// Its gateways hear from itself what becomes of their requests there.
void cluster_core::drop_worker(node_id node, worker_id worker) {
  auto& workers = members_.at(node).card.workers;
  const auto known = std::ranges::find(workers, worker, &instance_desc::id);
  if (known == workers.end()) return;
  workers.erase(known);
  scheduler_.remove_instance(worker);
}

void cluster_core::learn_prices(const node_report& message) {
  if (message.has_shard) {
    scheduler_.disk_measured(message.node, static_cast<double>(message.shard.ssd_read_bytes_per_s));
    scheduler_.memory_of(message.node, message.shard.slots_total);
  }
  for (const auto& p : message.moved.paths) {
    if (p.preferred)
      scheduler_.link_measured(message.node, p.peer, static_cast<double>(p.learned_bytes_per_s),
                               duration{p.learned_latency_ns});
  }
}

// ---- requests ----

void cluster_core::ask(const schedule_job& job, schedule_core::ticket asked, time_point now) {
  turn(now);
  if (lead_.leads(now)) return questions_.ask(job, asked, now);
  placement_msg none;
  none.id = job.id;
  none.rejection = {ec::unavailable, lead_.why_not(now)};
  none.term = lead_.term();
  actions_.emplace_back(answer_question{asked, std::move(none)});
}

void cluster_core::advance(time_point now) {
  if (lead_.leads(now)) questions_.advance(now);
}

void cluster_core::event(const request_event& e, time_point now) {
  board_.happened(e);
  if (e.stage == request_stage::first_token) {
    scheduler_.first_token(schedule_core::charge_id(e.id), e.new_tokens, e.cached_tokens,
                           duration{e.compute_ns}, now);
    totals_.prompt_tokens += e.new_tokens + e.cached_tokens;
    totals_.cached_tokens += e.cached_tokens;
  } else if (e.stage != request_stage::prefill_started) {
    over(e, now);
  }
  advance(now);
}

void cluster_core::over(const request_event& e, time_point now) {
  const auto id = schedule_core::charge_id(e.id);
  totals_.output_tokens += e.output_tokens;
  const auto charged = scheduler_.charged_requests();
  const bool waited = questions_.withdraw(e.id);
  switch (e.stage) {
    case request_stage::finished:
      ++totals_.finished;
      return scheduler_.finished(id, now, e.output_tokens, duration{e.tbt_ns});
    case request_stage::cancelled:
      scheduler_.cancelled(id, now);
      // Gateways say so of late answers, too, which may have been charged or not.
      totals_.cancelled += waited || scheduler_.charged_requests() < charged;
      return;
    case request_stage::refused:
      ++totals_.rejected_at_decode;
      totals_.wasted_prefill_tokens += e.wasted_tokens;
      ++totals_.failed;
      return scheduler_.refused_at_decode(id, now);
    default:
      ++totals_.failed;
      return scheduler_.failed(id, now);
  }
}

// ---- blocks ----

void cluster_core::blocks(const block_event_batch& batch) {
  const auto i = members_.find(batch.node);
  if (i == members_.end()) return;
  auto& m = i->second;
  switch (batch.snapshot ? m.stream.snapshot(batch.first_seq, batch.part)
                         : m.stream.apply(batch.first_seq, batch.events.size())) {
    case stream_verdict::replace:
      scheduler_.forget_blocks(batch.node);
      break;
    case stream_verdict::apply:
      break;
    case stream_verdict::stale:
      return;
    case stream_verdict::gap:
      // What is known of this node may name blocks that are gone. Ask for everything, once.
      ++gaps_;
      if (m.card.has_shard) actions_.emplace_back(follow_shard{batch.node});
      return;
  }
  for (const auto& e : batch.events) {
    if (e.what == block_change::removed) {
      scheduler_.blocks_gone(batch.node, {&e.name.key, 1});
    } else {
      scheduler_.blocks_held(batch.node, {&e.name.key, 1}, served_from(e.tier));
    }
  }
  if (!m.card.is_pool() && placing_) offer(batch);
}

void cluster_core::offer(const block_event_batch& batch) {
  std::vector<node_id> pool;
  for (const auto& [id, m] : members_) {
    if (m.card.is_pool() && !m.draining) pool.push_back(id);
  }
  if (pool.empty()) return;
  std::vector<block_name> stored;
  std::vector<block_event> events;
  for (const auto& e : batch.events) {
    if (e.what != block_change::stored || e.tier != storage_tier::dram) continue;
    stored.push_back(e.name);
    events.push_back(e);
  }
  std::vector<block_name> blocks;
  std::vector<block_event> ordered;
  for (const auto i : in_chains(stored)) {
    blocks.push_back(stored[i]);
    ordered.push_back(events[i]);
  }
  const auto holds = [this](node_id node, const block_key& key) {
    const auto index = scheduler_.cluster().index_of(node);
    return index && scheduler_.index().matched_blocks(*index, {&key, 1}) == 1;
  };
  for (const auto& w : plan_pool_writes(blocks, pool, holds)) {
    const auto first = ordered.begin() + static_cast<std::ptrdiff_t>(w.first);
    actions_.emplace_back(
        copy_blocks{w.target, {batch.node, {first, first + static_cast<std::ptrdiff_t>(w.count)}}});
  }
}

void cluster_core::copy_hot_blocks(time_point now) {
  for (const auto& copy : scheduler_.copy_hot_blocks(now)) {
    const auto target = members_.find(copy.target);
    if (target == members_.end() || !target->second.card.keeps_copies) continue;
    keep_order order;
    order.source = copy.source;
    for (const auto& b : copy.blocks) order.blocks.push_back({b});
    actions_.emplace_back(copy_blocks{copy.target, std::move(order)});
  }
}

void cluster_core::tick(time_point now) {
  // A node that is cut off without its link closing says nothing for long; the heartbeat of the link is the
  // first to notice, this is the second. Whoever is dropped and alive is told so with its next report.
  const auto expired = scheduler_.expire(now);
  for (const auto id : expired.nodes) forget(id, now);
  for (const auto id : expired.requests) actions_.emplace_back(charge_expired{id});
  turn(now);
  assign_roles(now);
  if (placing_) {
    copy_hot_blocks(now);
    questions_.tick(now);
    wish_nodes(now);
    if (auto due = shadow_.due(scheduler_, now)) actions_.emplace_back(play_minutes{std::move(*due)});
  }
  journal_.flush();
}

void cluster_core::assign_roles(time_point now) {
  for (const auto& change : scheduler_.assign_roles(now, placing_)) {
    const auto m = members_.find(change.node);
    actions_.emplace_back(
        log_turn{"role", m == members_.end() ? to_string(change.node) : m->second.card.name,
                 std::string{to_string(change.step)} + " " + std::string{to_string(change.role)},
                 loads_text(change.prefill_load, change.decode_load)});
  }
}

void cluster_core::wish_nodes(time_point now) {
  for (const auto& wish : scheduler_.wish_nodes(now)) {
    wish_ = wish;
    actions_.emplace_back(tell_wish{counts_of(wish), loads_text(wish.prefill_load, wish.decode_load)});
  }
}

// ---- admission `adaptive` ----

void cluster_core::played(const played_minutes& played, duration took, time_point now) {
  const auto before = scheduler_.rule();
  if (const auto rule = shadow_.played(scheduler_, played, took, now))
    actions_.emplace_back(
        log_turn{"admission", text_of(before), text_of(*rule), text_of(shadow_.standings())});
  advance(now);
}

admission_status cluster_core::admission() const {
  admission_status out{text_of(scheduler_.rule()), shadow_.changes(), {}, {}};
  for (const auto& s : shadow_.standings())
    out.played.push_back({text_of(s.rule), std::bit_cast<std::uint64_t>(s.share)});
  for (const auto& w : shadow_.what_ifs()) {
    const auto share = static_cast<double>(w.met) / static_cast<double>(w.judged);
    out.what_ifs.push_back({std::string{to_string(w.what)}, std::bit_cast<std::uint64_t>(share)});
  }
  return out;
}

// ---- other conductors ----

duration cluster_core::lead_interval() const { return lead_.alone() ? 24h : lead_.interval(); }

void cluster_core::lead_tick(time_point now) {
  lead_.tick(now);
  turn(now);
}

void cluster_core::heard(const lead_claim& claim, time_point now) {
  lead_.heard(claim, now);
  turn(now);
}

void cluster_core::answered(node_id from, const lead_claim& claim, time_point sent, const lead_vote& vote,
                            time_point now) {
  lead_.answered(from, claim, sent, vote, now);
  turn(now);
}

/// What an earlier leader charged is over or known from reports: gateways tell the leader alone of ends.
void cluster_core::turn(time_point now) {
  if (const auto right = lead_.right(); std::exchange(told_, right) != right && !lead_.alone())
    actions_.emplace_back(tell_right{right});
  const bool leads = lead_.leads(now);
  if (leads == placing_ && (!leads || lead_.term() == placed_term_)) return;
  placing_ = leads;
  if (!leads) questions_.forget_all();
  if (leads && std::exchange(placed_term_, lead_.term()) != lead_.term()) {
    for (const auto id : scheduler_.cluster().charged_before(time_point::max()))
      scheduler_.cancelled(id, now);
  }
  if (!lead_.alone())
    actions_.emplace_back(log_turn{
        "leadership", "term " + std::to_string(lead_.term()), leads ? "leads" : lead_.why_not(now), {}});
}

lead_status cluster_core::lead_of(time_point now) const {
  const auto how = lead_.standing(now);
  lead_status out{how.term, {}, {}, how.votes, how.voters, lead_.why_not(now)};
  for (const auto& [id, m] : members_) {
    if (m.card.seat == 0) continue;
    if (id == how.leader) out.leader = m.card.name;
    else out.standbys.push_back(m.card.name);
  }
  return out;
}

request_counts cluster_core::counters() const {
  auto out = totals_;
  const auto& counts = scheduler_.counts();
  out.placed = counts.placed;
  out.rejected_queue_full = queue_.refused();
  out.rejected_ttft = counts.rejected_ttft;
  out.rejected_tbt = counts.rejected_tbt;
  out.rejected_memory = counts.rejected_memory;
  out.rejected_unavailable = counts.rejected_unavailable;
  out.fetches = counts.fetches;
  out.hot_copies = counts.hot_copies;
  out.role_changes = counts.role_changes;
  out.wanted_prefill = wish_.prefill;
  out.wanted_decode = wish_.decode;
  out.wanted_nodes = wish_.nodes;
  out.charged_requests = scheduler_.charged_requests();
  return out;
}

cluster_status cluster_core::status(time_point now) const {
  cluster_status out;
  out.index = {scheduler_.index().size(), scheduler_.index().memory_bytes(), gaps_};
  out.counters = counters();
  out.queue = {queue_.size(), queue_.standing_by(), queue_.shed(), queue_.options().max_queued};
  out.admission = admission();
  out.lead = lead_of(now);
  out.members = board_.members(now);
  for (auto& m : out.members) {
    if (const auto index = scheduler_.cluster().index_of(m.id))
      m.indexed_blocks = scheduler_.index().held_blocks(*index);
    for (auto& w : m.workers) {
      w.load_bits = std::bit_cast<std::uint64_t>(scheduler_.load_of(w.id, now));
      if (const auto known = scheduler_.cluster().view(w.id, now)) w.state = known->state;
    }
  }
  for (const auto& [one, other] : scheduler_.broken().all()) out.broken_links.push_back({one, other});
  out.recent = board_.recent();
  return out;
}

void cluster_core::close() {
  members_.clear();
  questions_.close();
  journal_.close();
}

}  // namespace mooncaf
