#include "runtime/sched/conductor_core.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace mooncaf {

namespace {

// While traces of lost nodes are left in the index, every placement clears some and every expiry many:
// neither is delayed by more than a few microseconds (milliseconds).
constexpr std::size_t sweep_per_placement = 512;
constexpr std::size_t sweep_per_expiry = 1 << 20;

policy_options policy_of(const conductor_options& o) {
  return {o.policy, o.balancing_threshold, o.block_tokens, o.bytes_per_token, o.seed};
}

bool is_urgent(const schedule_request& request) noexcept { return request.priority == 0; }

/// Share of the requests that the predicted wait has to cover. Prices keep the queue below the SLO by
/// themselves and leave less to the margin.
double covered_share(admission_policy p) noexcept { return p == admission_policy::priced ? 0.9 : 0.95; }

duration or_default(duration wish, duration otherwise) noexcept {
  return wish > duration{} ? wish : otherwise;
}

}  // namespace

conductor_core::conductor_core(conductor_options options)
    : conductor_core(options, make_selector(policy_of(options))) {}

conductor_core::conductor_core(conductor_options options, std::unique_ptr<prefill_selector> selector)
    : options_(options),
      cluster_(std::max(options.decode_span, duration{std::chrono::milliseconds(1)})),
      transfers_(options.transfer),
      ttft_margin_(covered_share(options.admission)),
      selector_(std::move(selector)) {
  options_.block_tokens = std::max(options_.block_tokens, 1u);
}

// ---- instances
// ------------------------------------------------------------------------------------------------------

result<void> conductor_core::add_node(node_id node, time_point now) {
  if (cluster_.has_node(node)) {
    cluster_.touch(node, now);
    return {};
  }
  const auto index = index_.add_node();
  if (!index) {
    return fail(ec::out_of_space,
                "the index holds at most " + std::to_string(prefix_index::max_nodes) + " nodes");
  }
  cluster_.add_node(node, *index, now);
  return {};
}

result<void> conductor_core::add_instance(const instance_desc& desc) { return cluster_.add_instance(desc); }

std::vector<request_id> conductor_core::remove_node(node_id node) {
  const auto index = cluster_.index_of(node);
  if (!index) return {};
  auto lost = cluster_.remove_node(node);
  index_.drop_node(*index);
  transfers_.forget(*index);
  broken_.forget(node);
  counts_.lost += lost.size();
  return lost;
}

std::vector<request_id> conductor_core::remove_instance(worker_id worker) {
  auto lost = cluster_.remove_instance(worker);
  counts_.lost += lost.size();
  return lost;
}

result<void> conductor_core::set_state(worker_id worker, instance_state state) {
  return cluster_.set_state(worker, state);
}

void conductor_core::report(worker_id worker, const instance_load& load, time_point now) {
  cluster_.report(worker, load, now);
  if (load.running > 0 && load.step > duration{}) tbt_margin_.observe(load.step, options_.tbt_slo);
}

void conductor_core::heartbeat(node_id node, time_point now) { cluster_.touch(node, now); }

void conductor_core::unreachable(node_id node, std::span<const node_id> peers) {
  if (cluster_.has_node(node)) broken_.report(node, peers);
}

expiry conductor_core::expire(time_point now) {
  now_ = std::max(now_, now);
  const auto away = now - looked_;
  if (looked_ != time_point{} && away > options_.heartbeat_limit / 4) cluster_.excuse(away, now);
  looked_ = now;
  expiry out;
  out.nodes = cluster_.silent_since(now - options_.heartbeat_limit);
  for (const auto node : out.nodes) {
    const auto lost = remove_node(node);
    out.requests.insert(out.requests.end(), lost.begin(), lost.end());
  }
  for (const auto id : cluster_.charged_before(now - options_.charge_limit)) {
    end(id, request_state::expired, now);
    out.requests.push_back(id);
  }
  index_.sweep(sweep_per_expiry);
  return out;
}

// ---- blocks
// ---------------------------------------------------------------------------------------------------------

void conductor_core::block_held(node_id node, const block_key& key, holder_tier tier) {
  if (const auto i = cluster_.index_of(node)) index_.add(key, *i, tier);
}

void conductor_core::blocks_held(node_id node, std::span<const block_key> keys, holder_tier tier) {
  const auto i = cluster_.index_of(node);
  if (!i) return;
  for (const auto& k : keys) index_.prefetch(k);
  for (const auto& k : keys) index_.add(k, *i, tier);
}

void conductor_core::blocks_gone(node_id node, std::span<const block_key> keys) {
  const auto i = cluster_.index_of(node);
  if (!i) return;
  for (const auto& k : keys) index_.prefetch(k);
  for (const auto& k : keys) index_.remove(k, *i);
}

void conductor_core::block_gone(node_id node, const block_key& key) {
  if (const auto i = cluster_.index_of(node)) index_.remove(key, *i);
}

void conductor_core::forget_blocks(node_id node) {
  const auto old = cluster_.index_of(node);
  if (!old) return;
  // A new number for the same node: what is indexed under the old one is swept up later.
  index_.drop_node(*old);
  transfers_.forget(*old);
  cluster_.renumber(node, *index_.add_node());
}

// ---- requests
// -------------------------------------------------------------------------------------------------------

duration conductor_core::waited(const schedule_request& request, time_point now) const noexcept {
  return request.arrival == time_point{} ? duration{} : std::max<duration>(now - request.arrival, duration{});
}

std::optional<rejection> conductor_core::refuse_outright(const schedule_request& request) const {
  if (request.prompt_tokens == 0) return rejection{{ec::invalid_argument, "empty prompt"}};
  const auto missing = [](std::string_view role) {
    return rejection{{ec::unavailable, "no live " + std::string{role} + " instance"},
                     std::chrono::seconds(1)};
  };
  if (cluster_.prefill().live().empty()) return missing("prefill");
  if (cluster_.decode().live().empty()) return missing("decode");
  return std::nullopt;
}

/// Since arrival. Urgent requests wait for each other only; the others' queue drains as fast as those that
/// are still to come, and will go first, leave time for.
duration conductor_core::predicted_ttft(const schedule_request& request, const prefill_choice& p,
                                        time_point now) const {
  constexpr double most = 0.9;
  if (is_urgent(request)) return waited(request, now) + p.cost + cluster_.prefill().urgent_queue(p.slot, now);
  const double urgent =
      std::min(urgent_work_.at(now) / static_cast<double>(cluster_.prefill().live().size()), most);
  return waited(request, now) + p.cost + bounded_duration(to_seconds(p.ttft - p.cost) / (1 - urgent));
}

std::optional<rejection> conductor_core::admit(const schedule_request& request, const prefill_choice& p,
                                               const decode_choice& d, time_point now) {
  admission_question q;
  q.priority = request.priority;
  q.ttft = predicted_ttft(request, p, now);
  q.ttft_slo = or_default(request.ttft_slo, options_.ttft_slo);
  q.tbt_now = d.tbt;
  q.tbt_running = d.tbt_running;
  q.tbt_slo = or_default(request.tbt_slo, options_.tbt_slo);
  q.decode_saturated = d.saturated;
  q.decode_span = options_.decode_span;
  if (options_.admission == admission_policy::predictive) {
    const auto then = cluster_.forecast().at(now + p.ttft);
    q.tbt_then = cluster_.decode().mean_step(then.requests + 1, then.context_tokens + request.prompt_tokens);
  }
  if (predicts_each(options_.admission)) predict_each(request, p, now, q);
  return check_admission(options_.admission, q);
}

/// Decode load when this prefill ends, by what is known of each request; and what requests may cost at this
/// load.
void conductor_core::predict_each(const schedule_request& request, const prefill_choice& p, time_point now,
                                  admission_question& q) {
  const auto& decode = cluster_.decode();
  // Not only when its prefill ends: others that are in prefill by now join while it decodes.
  duration step{};
  for (const auto later : {0.0, 0.3, 0.8}) {
    const auto then = cluster_.survival().at(
        now + p.ttft + bounded_duration(later * to_seconds(options_.decode_span)), now);
    step = std::max(
        step, decode.mean_step(static_cast<std::uint64_t>(then.requests + 1.5),
                               static_cast<std::uint64_t>(then.context_tokens) + request.prompt_tokens));
  }
  q.tbt_then = bounded_duration(to_seconds(step) * tbt_margin_.factor());
  // The own computation is known; it is the wait for others that goes wrong.
  q.ttft = p.cost + bounded_duration(to_seconds(q.ttft - p.cost) * ttft_margin_.factor());
  if (options_.admission != admission_policy::priced || is_urgent(request))
    return;  // nobody prices those out
  const double share = slo_share(request.priority);
  q.cost = p.cost;
  q.context = request.prompt_tokens;
  prefill_prices_.observe(to_seconds(p.cost));
  decode_prices_.observe(request.prompt_tokens);
  const double queue_load = to_seconds(q.ttft - p.cost) / (to_seconds(q.ttft_slo) * share);
  // An empty step takes its time too: load is how much of the rest is taken.
  const double empty = to_seconds(decode.mean_step(1, request.prompt_tokens));
  const double decode_load =
      (to_seconds(q.tbt_then) - empty) / std::max(to_seconds(q.tbt_slo) * share - empty, 1e-9);
  q.cost_limit = bounded_duration(prefill_prices_.limit(queue_load));
  q.context_limit = decode_prices_.limit(decode_load);
}

tl::expected<placement, rejection> conductor_core::schedule(const schedule_request& request, time_point now) {
  now_ = std::max(now_, now);
  index_.sweep(sweep_per_placement);
  cluster_.forecast().trim(now);
  cluster_.survival().trim(now);
  if (auto refused = refuse_outright(request)) {
    ++counts_.rejected_unavailable;
    return tl::unexpected(std::move(*refused));
  }
  // The block of the last token is never reused: its logits have to be computed.
  const auto usable =
      std::min<std::size_t>(request.keys.size(), (request.prompt_tokens - 1) / options_.block_tokens);
  index_.match(request.keys.first(usable), match_);
  const auto [p, d] = choose(request, now);
  if (p.slot == no_slot || d.slot == no_slot) {
    ++counts_.rejected_unavailable;
    return tl::unexpected(rejection{{ec::unavailable,
                                     "no prefill and decode instance that can talk to each other and to the "
                                     "gateway"},
                                    std::chrono::seconds(1)});
  }
  if (auto refused = admit(request, p, d, now)) {
    ++(refused->stage == reject_stage::prefill ? counts_.rejected_ttft : counts_.rejected_tbt);
    return tl::unexpected(std::move(*refused));
  }
  return commit(request, p, d, now);
}

conductor_core::pair_choice conductor_core::choose(const schedule_request& request, time_point now) {
  if (!broken_.empty()) return choose_linked(request, now);
  return {selector_->select({request, match_, cluster_.prefill(), transfers_, now}),
          cluster_.decode().select(request.prompt_tokens, request.avoid)};
}

/// Where all three of gateway, prefill and decode reach each other. Links are seldom broken: this one takes
/// the time to look.
conductor_core::pair_choice conductor_core::choose_linked(const schedule_request& request, time_point now) {
  const auto& prefill = cluster_.prefill();
  const auto& decode = cluster_.decode();
  node_set barred;
  for (const auto slot : prefill.live()) {
    if (broken_.between(request.gateway, prefill.desc(slot).node)) barred.insert(prefill.node(slot));
  }
  for (;;) {
    const auto p = choose_prefill(request, barred, now);
    if (p.slot == no_slot || barred.test(prefill.node(p.slot))) return {};
    const auto at = prefill.desc(p.slot).node;
    std::vector<node_id> cut_off;
    for (const auto slot : decode.live()) {
      const auto node = decode.desc(slot).node;
      if (broken_.between(request.gateway, node) || broken_.between(at, node)) cut_off.push_back(node);
    }
    const auto d = decode.select(request.prompt_tokens, request.avoid, cut_off);
    if (d.slot != no_slot) return {p, d};
    barred.insert(prefill.node(p.slot));
  }
}

prefill_choice conductor_core::choose_prefill(const schedule_request& request, const node_set& barred,
                                              time_point now) {
  const auto& pool = cluster_.prefill();
  const auto p = selector_->select({request, match_, pool, transfers_, now, &barred});
  if (p.slot == no_slot || !p.fetch) return p;
  if (!broken_.between(cluster_.node_at(p.source), pool.desc(p.slot).node)) return p;
  // The prefix that it counts on cannot reach it: what is it worth without?
  return selector_->select({request, match_, pool, transfers_, now, &barred, false});
}

placement conductor_core::commit(const schedule_request& request, const prefill_choice& p,
                                 const decode_choice& d, time_point now) {
  const auto& prefill = cluster_.prefill().desc(p.slot);
  const auto& decode = cluster_.decode().desc(d.slot);
  placement out;
  out.prefill = prefill.id;
  out.prefill_node = prefill.node;
  out.decode = decode.id;
  out.decode_node = decode.node;
  out.local_blocks = p.local_blocks;
  out.predicted_ttft = waited(request, now) + p.ttft;
  out.predicted_tbt = d.tbt;
  if (p.fetch) {
    out.source = cluster_.node_at(p.source);
    out.source_blocks = p.source_blocks;
    out.source_tier = p.source_tier;
    out.replicate = true;
    const auto blocks = std::uint64_t{p.source_blocks} - p.local_blocks;
    transfers_.charge(p.source, blocks * options_.block_tokens * options_.bytes_per_token, now);
    ++counts_.fetches;
  }
  cluster_.charge(
      request.id,
      {p.slot, d.slot, p.cost, now + p.ttft, request.prompt_tokens, is_urgent(request), request.gateway},
      now);
  if (is_urgent(request)) urgent_work_.add(p.cost, now);
  ++counts_.placed;
  return out;
}

void conductor_core::prefill_started(request_id id, time_point now) {
  now_ = std::max(now_, now);
  cluster_.prefill_started(id);
}

void conductor_core::first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens,
                                 duration compute, time_point now) {
  now_ = std::max(now_, now);
  if (const auto done = cluster_.first_token(id, now)) {
    cluster_.prefill().observe(done->prefill, new_tokens, cached_tokens, compute);
    ttft_margin_.observe(done->predicted - done->prefill_cost, now - done->since - done->prefill_cost,
                         options_.ttft_slo);
  }
}

void conductor_core::end(request_id id, request_state how, time_point now) {
  now_ = std::max(now_, now);
  if (!cluster_.release(id, how, now)) return;
  switch (how) {
    case request_state::finished:
      ++counts_.finished;
      break;
    case request_state::expired:
      ++counts_.expired;
      break;
    default:
      ++counts_.failed;
      break;
  }
}

// ---- views
// ----------------------------------------------------------------------------------------------------------

double conductor_core::load_of(worker_id worker, time_point now) const {
  const auto v = cluster_.view(worker, now);
  if (!v) return 0;
  return v->role == instance_role::prefill ? to_seconds(v->queue) / to_seconds(options_.ttft_slo)
                                           : to_seconds(v->step) / to_seconds(options_.tbt_slo);
}

}  // namespace mooncaf
