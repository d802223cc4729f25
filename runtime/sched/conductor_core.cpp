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

/// Bytes of a prefix from which on it is brought from several nodes at once: less is there before they have
/// answered.
constexpr std::uint64_t worth_sharing = 4 * MiB;

// The work that a prefill instance has in store under admission `queue` fills its steps until its next
// report. A prompt that takes longer has one more behind it.
constexpr std::uint32_t prompts_in_store = 2;

policy_options policy_of(const conductor_options& o) {
  return {o.policy, o.balancing_threshold, o.block_tokens, o.bytes_per_token, o.seed};
}

}  // namespace

conductor_core::conductor_core(conductor_options options)
    : conductor_core(options, make_selector(policy_of(options))) {}

conductor_core::conductor_core(conductor_options options, std::unique_ptr<prefill_selector> selector)
    : options_(options),
      rule_{options.admission == admission_policy::adaptive ? admission_policy::queue : options.admission},
      cluster_(std::max(options.decode_span, duration{std::chrono::milliseconds(1)})),
      transfers_(options.transfer),
      judge_(options),
      roles_({options.elastic.on && !options.coupled, options.elastic.hold, options.elastic.budget},
             options.ttft_slo, options.tbt_slo),
      nodes_(options.scale, options.ttft_slo, options.tbt_slo, options.coupled),
      selector_(std::move(selector)),
      memory_{request_history{options.shadow.memory}} {
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

result<void> conductor_core::add_instance(const instance_desc& desc) {
  auto added = cluster_.add_instance(desc);
  if (added) roles_.added(desc, cluster_);
  return added;
}

std::vector<request_id> conductor_core::remove_node(node_id node) {
  const auto index = cluster_.index_of(node);
  if (!index) return {};
  auto lost = cluster_.remove_node(node);
  roles_.left(node, cluster_);
  index_.drop_node(*index);
  transfers_.forget(*index);
  copy_budget_.erase(node);
  hot_.forget(node);
  broken_.forget(node);
  counts_.lost += lost.size();
  return lost;
}

std::vector<request_id> conductor_core::remove_instance(worker_id worker) {
  auto lost = cluster_.remove_instance(worker);
  roles_.removed(worker, cluster_);
  nodes_.removed(worker);
  counts_.lost += lost.size();
  return lost;
}

result<void> conductor_core::set_state(worker_id worker, instance_state state) {
  auto set = cluster_.set_state(worker, state);
  // A node that is to go plays no role any more, and nobody counts on it.
  if (set && state == instance_state::draining) roles_.left(cluster_.view(worker, now_)->node, cluster_);
  return set;
}

void conductor_core::report(worker_id worker, const instance_load& load, time_point now) {
  cluster_.report(worker, load, now);
  roles_.reported(worker, load, now);
  nodes_.reported(worker, load, now);
}

std::vector<role_change> conductor_core::assign_roles(time_point now, bool leads) {
  now_ = std::max(now_, now);
  roles_.decide(cluster_, now, leads);
  auto changes = roles_.take_changes();
  for (const auto& c : changes) counts_.role_changes += c.step == role_step::plays;
  return changes;
}

std::vector<scale_wish> conductor_core::wish_nodes(time_point now) {
  now_ = std::max(now_, now);
  const auto wish = nodes_.decide(cluster_, now);
  return wish ? std::vector{*wish} : std::vector<scale_wish>{};
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

void conductor_core::blocks_held(node_id node, std::span<const block_key> keys, storage_tier tier) {
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

std::vector<block_key> conductor_core::kept_elsewhere(node_id node, std::span<const block_key> keys) const {
  std::vector<block_key> out;
  const auto i = cluster_.index_of(node);
  if (!i) return out;
  for (std::size_t k = 0; k + 1 < keys.size(); k += 2) index_.prefetch(keys[k]);
  for (std::size_t k = 0; k + 1 < keys.size(); k += 2)
    if (index_.kept_elsewhere({keys[k + 1].low, keys[k].low}, *i)) out.push_back(keys[k]);
  return out;
}

void conductor_core::forget_blocks(node_id node) {
  const auto old = cluster_.index_of(node);
  if (!old) return;
  // The node gets a new number: entries of the index under the old one are swept up later.
  index_.drop_node(*old);
  transfers_.forget(*old);
  cluster_.renumber(node, *index_.add_node());
}

void conductor_core::memory_of(node_id node, std::uint64_t blocks) {
  memory_.node_blocks = blocks;
  const auto budget = static_cast<std::size_t>(static_cast<double>(blocks) * options_.hot_copy_share);
  if (budget > 0 && cluster_.has_node(node)) copy_budget_[node] = budget;
}

std::vector<hot_copy> conductor_core::copy_hot_blocks(time_point now) {
  std::vector<hot_node> nodes;
  for (const auto& [node, budget] : copy_budget_) {
    const auto slots = cluster_.prefill().live_on(*cluster_.index_of(node));
    if (slots.empty()) continue;
    hot_node n{node, duration::max(), budget};
    for (const auto slot : slots) n.queue = std::min(n.queue, cluster_.prefill().queue(slot, now));
    nodes.push_back(n);
  }
  std::ranges::sort(nodes, {}, [](const hot_node& n) { return n.id.value; });
  const auto holds = [this](node_id node, const block_key& key) {
    const auto i = cluster_.index_of(node);
    return i && index_.matched_blocks(*i, {&key, 1}) == 1;
  };
  auto copies = hot_.plan(nodes, holds, now);
  for (const auto& c : copies) {
    const auto bytes = c.blocks.size() * options_.block_tokens * options_.bytes_per_token;
    transfers_.charge(*cluster_.index_of(c.source), *cluster_.index_of(c.target), bytes, now);
    counts_.hot_copies += c.blocks.size();
  }
  return copies;
}

void conductor_core::link_measured(node_id one, node_id other, double bytes_per_s, duration latency) {
  const auto a = cluster_.index_of(one), b = cluster_.index_of(other);
  if (a && b) transfers_.link_measured(*a, *b, bytes_per_s, latency);
}

void conductor_core::disk_measured(node_id node, double bytes_per_s) {
  if (const auto i = cluster_.index_of(node)) transfers_.disk_measured(*i, bytes_per_s);
}

// ---- requests
// -------------------------------------------------------------------------------------------------------

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

cluster_room conductor_core::room_at(time_point now) const {
  const auto& prefill = cluster_.prefill();
  if (prefill.live().empty() || cluster_.decode().live().empty()) return {};
  cluster_room room{false, !cluster_.decode().select(0).saturated};
  // Where the SLO is short no more than a part of it is spent behind other work.
  const auto store = std::min<duration>(options_.prefill_store, options_.ttft_slo / 4);
  for (std::size_t c = 0; c < prefill.class_count() && !room.prefill; ++c) {
    const auto slot = prefill.shortest(c, now);
    room.prefill =
        slot != no_slot && (prefill.pending(slot) < prompts_in_store || prefill.queue(slot, now) <= store);
  }
  return room;
}

bool conductor_core::prefill_is_idle(time_point now) const {
  const auto& prefill = cluster_.prefill();
  for (std::size_t c = 0; c < prefill.class_count(); ++c) {
    if (const auto slot = prefill.shortest(c, now); slot != no_slot && prefill.pending(slot) == 0)
      return true;
  }
  return false;
}

/// Refuses a request that the largest decode instance could never hold: no wait helps.
std::optional<rejection> conductor_core::refuse_too_long(const schedule_request& request) const {
  const auto& decode = cluster_.decode();
  const auto most = decode.largest_memory();
  const bool whole = decode.desc(decode.live().front()).reserves_answers;
  const auto least = std::uint64_t{request.prompt_tokens} + (whole ? request.max_tokens : 1);
  if (most == 0 || least <= most) return std::nullopt;
  return rejection{{ec::invalid_argument, "needs memory for " + std::to_string(least) +
                                              " tokens to decode; the largest decode instance has " +
                                              std::to_string(most)},
                   {},
                   reject_stage::memory};
}

std::size_t conductor_core::answer_of(const schedule_request& request) const {
  return answer_class::of(request.prompt_tokens, request.max_tokens,
                          cluster_.sessions().earlier(request.keys),
                          cluster_.tenants().typical(request.tenant));
}

std::span<const block_key> conductor_core::usable_keys(const schedule_request& request) const {
  // The block of the last token is never reused: its logits have to be computed.
  const auto usable =
      std::min<std::size_t>(request.keys.size(), (request.prompt_tokens - 1) / options_.block_tokens);
  return request.keys.first(usable);
}

std::optional<request_forecast> conductor_core::foresee(const schedule_request& request, time_point now) {
  if (refuse_outright(request)) return std::nullopt;
  const auto [p, d] = look_and_choose(request, now);
  if (p.slot == no_slot || d.slot == no_slot) return std::nullopt;
  const auto known = view();
  const placement_candidate c{known, request, p, d, answer_of(request), now, {}, 1};
  return request_forecast{
      {to_seconds(p.cost), judge_.decode_work(c)}, to_seconds(p.ttft - p.cost), judge_.can_keep_tbt(c)};
}

/// Looks whether the request may be served at all, chooses instances, asks the judge, and charges them.
tl::expected<placement, rejection> conductor_core::schedule(const schedule_request& request, time_point now,
                                                            double tbt_room) {
  now_ = std::max(now_, now);
  index_.sweep(sweep_per_placement);
  cluster_.forecast().trim(now);
  if (auto refused = refuse_outright(request)) {
    ++counts_.rejected_unavailable;
    return tl::unexpected(std::move(*refused));
  }
  if (auto refused = refuse_too_long(request)) {
    ++counts_.rejected_memory;
    return tl::unexpected(std::move(*refused));
  }
  if (rule_.policy == admission_policy::queue && !room_at(now).both()) {
    return tl::unexpected(
        rejection{{ec::overloaded, "every instance has requests in store"}, {}, reject_stage::queue});
  }
  const auto [p, d] = look_and_choose(request, now);
  if (p.slot == no_slot || d.slot == no_slot) {
    ++counts_.rejected_unavailable;
    return tl::unexpected(rejection{{ec::unavailable,
                                     "no prefill and decode instance that can talk to each other and to the "
                                     "gateway"},
                                    std::chrono::seconds(1)});
  }
  const auto known = view();
  placement_candidate c{known, request, p, d, 0, now, {}, tbt_room};
  c.answer = answer_of(request);
  judge_.find_room(c);
  judge_.find_link(c);
  if (auto refused = judge_.judge(c)) {
    if (refused->stage == reject_stage::queue) return tl::unexpected(std::move(*refused));
    ++(refused->stage == reject_stage::prefill  ? counts_.rejected_ttft
       : refused->stage == reject_stage::memory ? counts_.rejected_memory
                                                : counts_.rejected_tbt);
    return tl::unexpected(std::move(*refused));
  }
  if (!copy_budget_.empty()) hot_.used(usable_keys(request), now);
  return commit(c);
}

void conductor_core::came(const schedule_request& request, time_point now) {
  const bool adapts = options_.admission == admission_policy::adaptive;
  if ((!adapts && !options_.shadow.remembers) || request.resumed || memory_.requests.knows(request.id))
    return;
  prefix_holder holder;
  const auto answer = answer_of(request);
  if (!refuse_outright(request)) {
    index_.match(usable_keys(request), match_);
    const auto longest = match_.longest();
    if (longest.blocks > 0) holder = {cluster_.node_at(longest.node), longest.blocks};
    // Only where its answer counts: a policy may draw lots.
    const auto [p, d] = adapts ? choose(request, now) : pair_choice{};
    if (p.slot != no_slot && d.slot != no_slot) {
      const auto known = view();
      judge_.appraise({known, request, p, d, answer, now, {}, 1});
    }
  }
  memory_.requests.came(request, holder, answer, now);
}

void conductor_core::play_by(const admission_rule& rule, std::span<const played_rule> /*played*/,
                             time_point now) {
  now_ = std::max(now_, now);
  rule_ = rule;
  judge_.play_by(rule);
}

conductor_core::pair_choice conductor_core::look_and_choose(const schedule_request& request, time_point now) {
  index_.match(usable_keys(request), match_);
  return choose(request, now);
}

conductor_core::pair_choice conductor_core::choose(const schedule_request& request, time_point now) {
  if (options_.coupled) return choose_coupled(request, now);
  if (!broken_.empty()) return choose_linked(request, now);
  return {selector_->select({request, match_, cluster_.prefill(), transfers_, now}),
          cluster_.decode().select(request.prompt_tokens, request.avoid)};
}

/// The decode instance on a prefill instance's node that has the least to do; `no_slot` if there is none.
instance_slot conductor_core::decode_beside(instance_slot prefill) const {
  const auto& decode = cluster_.decode();
  const auto here = cluster_.decode_on(cluster_.prefill().desc(prefill).node);
  if (here.empty()) return no_slot;
  return *std::ranges::min_element(here, {}, [&](instance_slot slot) { return decode.charged(slot); });
}

/// One node for both: the one that would be done the soonest with its work, decoding included. Nodes that do
/// only one of both, that the gateway does not reach or (while there are others) that failed the request
/// before do not count.
conductor_core::pair_choice conductor_core::choose_coupled(const schedule_request& request, time_point now) {
  auto& prefill = cluster_.prefill();
  const auto& decode = cluster_.decode();
  const double empty = to_seconds(decode.mean_step(0, 0));
  // Requests that decode are, on average, half done.
  const double left = 0.5 * cluster_.survival().mean_tokens();
  node_set barred;
  for (const auto slot : prefill.live()) {
    const auto beside = decode_beside(slot);
    if (beside == no_slot || (!broken_.empty() && broken_.between(request.gateway, prefill.desc(slot).node)))
      barred.insert(prefill.node(slot));
    if (beside == no_slot || decode.is_idle(beside)) continue;
    prefill.set_standing(slot, bounded_duration(left * (to_seconds(decode.step(beside, 0, false)) - empty)));
  }
  auto failed = barred;
  for (const auto slot : prefill.live()) {
    const auto is_beside = [&](worker_id id) {
      const auto beside = decode_beside(slot);
      return beside != no_slot && decode.desc(beside).id == id;
    };
    if (std::ranges::any_of(request.avoid, is_beside)) failed.insert(prefill.node(slot));
  }
  const auto fits = [&](const prefill_choice& p) {
    return p.slot != no_slot && !barred.test(prefill.node(p.slot));
  };
  auto p = choose_prefill(request, failed, now);
  if (!fits(p) || failed.test(prefill.node(p.slot))) p = choose_prefill(request, barred, now);
  const bool found = fits(p);
  const auto whole = found ? prefill.queue(p.slot, now) : duration{};
  for (const auto slot : prefill.live()) prefill.set_standing(slot, {});
  if (!found) return {};
  p.ttft -= whole - prefill.queue(p.slot, now);
  return {p, decode.choice(decode_beside(p.slot), request.prompt_tokens)};
}

/// Chooses instances such that gateway, prefill and decode reach each other. It may look at all, as links are
/// seldom broken.
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
  // The prefix that this instance counts on cannot reach it: the choice is made again without fetches.
  return selector_->select({request, match_, pool, transfers_, now, &barred, false});
}

/// Charges at once, before any worker has heard: the next request, a microsecond later, must see it.
placement conductor_core::commit(const placement_candidate& c) {
  const auto& [in, request, p, d, answer, now, step, tbt_room] = c;
  const auto& prefill = cluster_.prefill().desc(p.slot);
  const auto& decode = cluster_.decode().desc(d.slot);
  placement out;
  out.prefill = prefill.id;
  out.prefill_node = prefill.node;
  out.decode = decode.id;
  out.decode_node = decode.node;
  out.local_blocks = p.local_blocks;
  out.predicted_ttft = waited_by(request, now) + p.ttft;
  out.predicted_tbt = d.tbt;
  if (p.fetch) {
    out.source = cluster_.node_at(p.source);
    out.source_blocks = p.source_blocks;
    out.source_tier = p.source_tier;
    out.replicate = true;
    out.beside = holders_beside(p, prefill.node, now);
    const auto blocks = std::uint64_t{p.source_blocks} - p.local_blocks;
    transfers_.charge(p.source, cluster_.prefill().node(p.slot),
                      blocks * options_.block_tokens * options_.bytes_per_token, now);
    ++counts_.fetches;
  }
  cluster_state::placed what{
      p.slot, d.slot, p.cost, now + p.ttft, request.prompt_tokens, is_urgent(request), request.gateway};
  what.memory_tokens = admission_judge::memory_needs(c, d.slot);
  what.answer = answer;
  what.step = c.step;
  if (!request.keys.empty()) what.session = request.keys.back();
  what.tenant = request.tenant;
  what.kv = admission_judge::kv_of(c, d.slot);
  transfers_.promise(what.kv, now);
  cluster_.charge(request.id, what, now);
  judge_.placed(c);
  ++counts_.placed;
  return out;
}

/// Nodes that can send `to` a part of the blocks that `p` fetches, while its source sends the rest.
std::vector<prefix_holder> conductor_core::holders_beside(const prefill_choice& p, node_id to,
                                                          time_point now) const {
  const auto fetched = p.source_blocks - p.local_blocks;
  if (std::uint64_t{fetched} * options_.block_tokens * options_.bytes_per_token < worth_sharing) return {};
  const auto at_least = p.local_blocks + (fetched + 1) / 2;
  std::vector<std::pair<duration, prefix_holder>> found;
  const auto consider = [&](node_index n, std::uint32_t blocks) {
    const auto node = cluster_.node_at(n);
    if (n == p.source || node == to || (!broken_.empty() && broken_.between(node, to))) return;
    found.push_back({transfers_.wait(n, now), {node, std::min(blocks, p.source_blocks)}});
  };
  for (const auto& m : match_.few()) {
    if (m.dram_blocks >= at_least) consider(m.node, m.dram_blocks);
  }
  for (const auto& crowd : match_.crowds()) {
    if (crowd.blocks >= at_least) crowd.nodes.for_each([&](node_index n) { consider(n, crowd.blocks); });
  }
  const auto count = std::min(found.size(), placement::most_beside);
  std::ranges::partial_sort(found, found.begin() + static_cast<std::ptrdiff_t>(count), {}, [](const auto& f) {
    return std::pair{f.first, f.second.node.value};
  });
  std::vector<prefix_holder> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(found[i].second);
  return out;
}

void conductor_core::prefill_started(request_id id, time_point now) {
  now_ = std::max(now_, now);
  cluster_.prefill_started(id);
}

void conductor_core::first_token(request_id id, std::uint32_t new_tokens, std::uint32_t cached_tokens,
                                 duration compute, time_point now) {
  now_ = std::max(now_, now);
  memory_.requests.begun(id, now);
  if (auto done = cluster_.first_token(id, now)) {
    transfers_.hasten(done->kv, now);
    cluster_.prefill().observe(done->prefill, new_tokens, cached_tokens, compute);
    judge_.waited(done->predicted - done->prefill_cost, now - done->since - done->prefill_cost,
                  options_.ttft_slo);
    judge_.prefilled(done->predicted, now - done->since);
  }
}

void conductor_core::end(request_id id, request_state how, time_point now, std::uint32_t output_tokens,
                         duration tbt) {
  now_ = std::max(now_, now);
  if (const auto* what = cluster_.charged(id); what != nullptr && how == request_state::finished) {
    judge_.decoded(what->step, tbt, options_.tbt_slo);
    if (output_tokens > 0) memory_.requests.answered(id, output_tokens, now);
  }
  if (const auto* what = cluster_.charged(id)) transfers_.withdraw(what->kv, now);
  if (!cluster_.release(id, how, now, output_tokens)) return;
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

duration conductor_core::hand_over_wait(const schedule_request& request, const prefill_choice& from,
                                        instance_slot to, time_point now) const {
  const auto known = view();
  return transfers_.wait(admission_judge::kv_of({known, request, from, {}, 0, now, {}, 1}, to));
}

// ---- views
// ----------------------------------------------------------------------------------------------------------

double conductor_core::load_of(worker_id worker, time_point now) const {
  const auto v = cluster_.view(worker, now);
  if (!v) return 0;
  return v->role == worker_role::prefill ? to_seconds(v->queue) / to_seconds(options_.ttft_slo)
                                         : to_seconds(v->step) / to_seconds(options_.tbt_slo);
}

}  // namespace mooncaf
