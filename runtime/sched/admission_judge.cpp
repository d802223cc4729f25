#include "runtime/sched/admission_judge.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/sched/slowest_gaps.hpp"

namespace mooncaf {

namespace {

/// When a placed request meets the others: as it begins to decode, and later, when others that are in prefill
/// by now have joined it; in decode spans after the end of its prefill.
constexpr double moments[] = {0.0, 0.3, 0.8};

/// How many standard deviations above its mean the memory that others will hold is taken to be.
constexpr double memory_caution = 0.5;

/// The price of decoding rises as the foreseen load nears the SLO, with this much in reserve.
constexpr double tbt_reserve = 1.2;

/// Where memory is short a few may wait for it at decode, which keeps it full: for this share of the wait
/// that the TBT SLO allows, since links want some, and of an answer's time. A longer queue fills it no better
/// and lets in the requests that take most of it.
constexpr double share_of_patience = 0.7, share_of_answer = 0.1;

/// A predicted wait counts for more than it is: one that turns out longer breaks an SLO, one that turns out
/// shorter leaves the link to others.
constexpr double cautious_wait = 1.4;

/// Load of a role up to which `priced` refuses no request, while all that is asked for can be done.
constexpr double free_of_prefill = 0.7, free_of_decode = 0.85;

/// Share of the requests that the predicted wait has to cover. Prices keep the queue below the SLO by
/// themselves and leave less to the margin: a request that is refused for it is lost for certain.
double covered_share(admission_policy p) noexcept { return p == admission_policy::priced ? 0.6 : 0.95; }

duration or_default(duration wish, duration otherwise) noexcept {
  return wish > duration{} ? wish : otherwise;
}

/// All of it stays as it is, to the nanosecond.
duration part_of(duration slo, double share) noexcept {
  return share == 1 ? slo : bounded_duration(to_seconds(slo) * share);
}

/// Gaps that a wait of one is spread over, if answers have so many tokens: a wait for KV is one of the slow ones.
double gaps_of(double tokens) noexcept {
  return std::max(static_cast<double>(least_slow_gaps), tokens / gaps_per_slow_one);
}

}  // namespace

admission_judge::admission_judge(const conductor_options& options)
    : urgent_work_(options.demand_memory),
      ttft_margin_(covered_share(options.admission)),
      prefill_prices_(free_of_prefill, options.demand_memory),
      decode_prices_(free_of_decode, options.demand_memory) {}

void admission_judge::placed(const placement_candidate& c) {
  if (is_urgent(c.request)) urgent_work_.add(to_seconds(c.prefill.cost), c.now);
}

/// TTFT since arrival. Urgent requests wait for each other only; the queue of the others drains in the time
/// that later urgent ones, which go first, will leave.
duration admission_judge::predicted_ttft(const placement_candidate& c) const {
  const auto& request = c.request;
  const auto& p = c.prefill;
  const auto now = c.now;
  constexpr double most = 0.9;
  if (is_urgent(request))
    return waited_by(request, now) + p.cost + c.in.cluster.prefill().urgent_queue(p.slot, now);
  const double urgent =
      std::min(urgent_work_.at(now) / static_cast<double>(c.in.cluster.prefill().live().size()), most);
  return waited_by(request, now) + p.cost + bounded_duration(to_seconds(p.ttft - p.cost) / (1 - urgent));
}

// ---- memory
// ---------------------------------------------------------------------------------------------------------

std::uint64_t admission_judge::memory_needs(const placement_candidate& c, instance_slot slot) {
  const auto prompt = std::uint64_t{c.request.prompt_tokens};
  if (c.in.cluster.decode().desc(slot).reserves_answers) return prompt + c.request.max_tokens;
  return prompt + c.in.cluster.survival().likely_tokens(c.answer, c.request.max_tokens);
}

/// The memory of others is foreseen as exactly as the policy allows, since room kept for an answer that ends
/// earlier is lost.
double admission_judge::memory_taken(const placement_candidate& c, instance_slot slot) const {
  const auto& decode = c.in.cluster.decode();
  const auto all = static_cast<double>(decode.reserved(slot));
  const auto others = static_cast<double>(decode.occupied(slot));
  switch (c.in.rule.policy) {
    case admission_policy::early_running:
      return static_cast<double>(decode.reserved_running(slot)) + others;
    case admission_policy::predictive: {
      const auto then = c.in.cluster.forecast().at(c.now + c.prefill.ttft);
      return static_cast<double>(then.memory_tokens) / static_cast<double>(decode.live().size()) + others;
    }
    case admission_policy::per_request:
    case admission_policy::priced: {
      const auto& answers = c.in.cluster.survival();
      const auto limit =
          to_seconds(or_default(c.request.tbt_slo, c.in.options.tbt_slo)) * slo_share(c.request.priority);
      const auto step = to_seconds(decode.step(slot, c.request.prompt_tokens)) * tbt_margin_.factor();
      const auto patience = std::max(limit - step, 0.0) * gaps_of(answers.mean_tokens());
      const auto wait =
          std::min(share_of_patience * patience, share_of_answer * answers.mean_seconds(c.answer));
      double most = 0;
      for (const auto later : moments) {
        const auto when =
            c.now + c.prefill.ttft + bounded_duration(wait + later * to_seconds(c.in.options.decode_span));
        const auto then = answers.at(slot, when, c.now);
        most = std::max(most, then.memory_tokens + memory_caution * std::sqrt(then.memory_variance));
      }
      return std::min(most + others, all);
    }
    default:
      return all;
  }
}

void admission_judge::ask_for_memory(const placement_candidate& c, instance_slot slot,
                                     admission_question& q) const {
  q.memory_limit = c.in.cluster.decode().desc(slot).capacity_tokens;
  q.memory_needs = static_cast<double>(memory_needs(c, slot));
  q.memory = q.memory_limit == 0 ? 0 : memory_taken(c, slot);
}

bool admission_judge::has_room(const placement_candidate& c, instance_slot slot) const {
  const auto& decode = c.in.cluster.decode();
  const auto limit = decode.desc(slot).capacity_tokens;
  if (limit == 0 || decode.reserved(slot) + memory_needs(c, slot) <= limit) return true;
  admission_question q;
  q.priority = c.request.priority;
  ask_for_memory(c, slot, q);
  return fits_memory(q);
}

/// Another decode instance, if the memory of the chosen one will be full and that one's will not.
void admission_judge::find_room(placement_candidate& c) const {
  const auto& decode = c.in.cluster.decode();
  if (c.in.options.coupled || has_room(c, c.decode.slot)) return;
  const auto other = decode.roomiest(c.request.avoid);
  if (other == no_slot || other == c.decode.slot || !has_room(c, other)) return;
  const auto node = decode.desc(other).node;
  const auto from = c.in.cluster.prefill().desc(c.prefill.slot).node;
  if (c.in.broken.between(c.request.gateway, node) || c.in.broken.between(from, node)) return;
  c.decode = decode.choice(other, c.request.prompt_tokens);
}

// ---- hand-over
// ------------------------------------------------------------------------------------------------------

hand_over admission_judge::kv_of(const placement_candidate& c, instance_slot slot) {
  const auto& node = c.in.cluster.decode().desc(slot).node;
  if (c.in.options.coupled || c.request.max_tokens == 1 ||
      node == c.in.cluster.prefill().desc(c.prefill.slot).node)
    return {};
  const auto& p = c.prefill;
  const auto reused =
      std::min(std::uint64_t{p.fetch ? p.source_blocks : p.local_blocks} * c.in.options.block_tokens,
               std::uint64_t{c.request.prompt_tokens});
  hand_over h;
  h.from = c.in.cluster.prefill().node(p.slot);
  h.to = *c.in.cluster.index_of(node);
  h.begin = c.now + p.ttft - p.cost;
  h.end = c.now + p.ttft;
  h.reused = reused * c.in.options.bytes_per_token;
  h.computed = (c.request.prompt_tokens - reused) * c.in.options.bytes_per_token;
  return h;
}

duration admission_judge::hand_over_part(const placement_candidate& c, instance_slot slot) const {
  return bounded_duration(cautious_wait * to_seconds(c.in.transfers.wait(kv_of(c, slot))) /
                          gaps_of(c.in.cluster.survival().mean_tokens()));
}

/// Another decode instance, if the KV would wait long on its way to the chosen one and less to that one.
void admission_judge::find_link(placement_candidate& c) const {
  const auto limit =
      to_seconds(or_default(c.request.tbt_slo, c.in.options.tbt_slo)) * slo_share(c.request.priority);
  const auto cost = [&](instance_slot slot) {
    return to_seconds(c.in.cluster.decode().step(slot, c.request.prompt_tokens)) +
           to_seconds(hand_over_part(c, slot));
  };
  if (hand_over_part(c, c.decode.slot) == duration{}) return;
  const auto here = cost(c.decode.slot);
  if (here <= limit) return;
  auto best = c.decode.slot;
  auto least = here;
  const auto from = c.in.cluster.prefill().desc(c.prefill.slot).node;
  for (const auto slot : c.in.cluster.decode().live()) {
    const auto& d = c.in.cluster.decode().desc(slot);
    if (std::ranges::find(c.request.avoid, d.id) != c.request.avoid.end() ||
        c.in.broken.between(c.request.gateway, d.node) || c.in.broken.between(from, d.node) ||
        !has_room(c, slot))
      continue;
    if (const auto there = cost(slot); there < least) best = slot, least = there;
  }
  if (best != c.decode.slot) c.decode = c.in.cluster.decode().choice(best, c.request.prompt_tokens);
}

// ---- admission
// ------------------------------------------------------------------------------------------------------

/// Gathers all that the policy asks for; a request whose answer has begun is asked nothing.
std::optional<rejection> admission_judge::judge(placement_candidate& c) {
  const auto& request = c.request;
  if (request.resumed) return std::nullopt;
  admission_question q;
  q.priority = request.priority;
  q.ttft = predicted_ttft(c);
  q.ttft_slo = part_of(or_default(request.ttft_slo, c.in.options.ttft_slo), c.in.rule.slo_share);
  q.tbt_now = c.decode.tbt;
  q.tbt_running = c.decode.tbt_running;
  q.tbt_slo = part_of(or_default(request.tbt_slo, c.in.options.tbt_slo), c.in.rule.slo_share);
  q.decode_saturated = c.decode.saturated;
  q.decode_span = c.in.options.decode_span;
  const auto& prefill = c.in.cluster.prefill();
  q.try_prefill = prefill.pending(c.prefill.slot) == 0;
  const auto& decode = c.in.cluster.decode();
  q.try_decode = decode.charged(c.decode.slot) == 0 && decode.reserved(c.decode.slot) == 0;
  const auto policy = c.in.rule.policy;
  const bool adapts = c.in.options.admission == admission_policy::adaptive;
  if (adapts || (policy != admission_policy::none && policy != admission_policy::baseline))
    ask_for_memory(c, c.decode.slot, q);
  if (policy == admission_policy::predictive) {
    const auto then = c.in.cluster.forecast().at(c.now + c.prefill.ttft);
    q.tbt_then =
        c.in.cluster.decode().mean_step(then.requests + 1, then.context_tokens + request.prompt_tokens);
  }
  if (predicts_each(policy) || policy == admission_policy::queue) {
    predict_each(c, q);
  } else if (adapts) {
    auto unused = q;  // how wrong such predictions are is learned under every rule
    predict_each(c, unused);
  }
  q.tbt_room = c.tbt_room;
  q.tbt_alone = c.in.cluster.decode().mean_step(1, request.prompt_tokens);
  q.tbt_then += hand_over_part(c, c.decode.slot);
  return check_admission(policy, q);
}

void admission_judge::prefilled(duration predicted, duration took) noexcept {
  if (predicted <= duration{} || took <= duration{}) return;
  const double error = std::log(to_seconds(took) / to_seconds(predicted));
  prefill_error_.observe(error);
  prefill_margin_.observe(error);
}

bool admission_judge::can_keep_tbt(const placement_candidate& c) const {
  const auto slo = to_seconds(or_default(c.request.tbt_slo, c.in.options.tbt_slo));
  return to_seconds(c.in.cluster.decode().mean_step(1, c.request.prompt_tokens)) <= slo;
}

double admission_judge::decode_work(const placement_candidate& c) const {
  const auto& decode = c.in.cluster.decode();
  const double slo = to_seconds(or_default(c.request.tbt_slo, c.in.options.tbt_slo));
  const double empty = to_seconds(decode.mean_step(0, 0));
  const double alone = to_seconds(decode.mean_step(1, c.request.prompt_tokens));
  double part = std::min((alone - empty) / std::max(slo - empty, 1e-9), 1.0);
  if (const auto limit = decode.desc(c.decode.slot).capacity_tokens; limit > 0)
    part = std::max(part, static_cast<double>(memory_needs(c, c.decode.slot)) / static_cast<double>(limit));
  return part * c.in.cluster.survival().mean_seconds(c.answer);
}

/// Decode load when this prefill ends, foreseen request by request; and the limits of cost at this load.
void admission_judge::predict_each(placement_candidate& c, admission_question& q) {
  const auto& decode = c.in.cluster.decode();
  duration step{};
  for (const auto later : moments) {
    const auto then = c.in.cluster.survival().at(
        c.now + c.prefill.ttft + bounded_duration(later * to_seconds(c.in.options.decode_span)), c.now);
    step = std::max(
        step, decode.mean_step(static_cast<std::uint64_t>(then.requests + 1.5),
                               static_cast<std::uint64_t>(then.context_tokens) + c.request.prompt_tokens));
  }
  c.step = step;
  q.tbt_then = bounded_duration(to_seconds(step) * tbt_margin_.factor());
  // The own computation is known; it is the wait for others that goes wrong.
  q.ttft = c.prefill.cost + bounded_duration(to_seconds(q.ttft - c.prefill.cost) * ttft_margin_.factor());
  // Urgent requests are never priced out.
  if (c.in.rule.policy == admission_policy::priced && !is_urgent(c.request)) price(c, q);
}

/// In shares of a decode instance times seconds.
double admission_judge::decode_cost(const placement_candidate& c, const admission_question& q) const {
  const auto& decode = c.in.cluster.decode();
  const double slo = to_seconds(q.tbt_slo) * slo_share(c.request.priority);
  const double empty = to_seconds(decode.mean_step(0, 0));
  const double alone = to_seconds(decode.mean_step(1, c.request.prompt_tokens));
  double part = (alone - empty) / std::max(slo - empty, 1e-9);
  if (q.memory_limit > 0) {
    const auto limit = static_cast<double>(q.memory_limit) * memory_share(c.request.priority);
    part = std::max(part, q.memory_needs / limit);
  }
  return part * c.in.cluster.survival().mean_seconds(c.answer);
}

void admission_judge::play_by(const admission_rule& rule) { ttft_margin_.cover(covered_share(rule.policy)); }

void admission_judge::appraise(const placement_candidate& c) {
  if (is_urgent(c.request)) return;
  admission_question q;
  q.tbt_slo = or_default(c.request.tbt_slo, c.in.options.tbt_slo);
  q.memory_limit = c.in.cluster.decode().desc(c.decode.slot).capacity_tokens;
  q.memory_needs = static_cast<double>(memory_needs(c, c.decode.slot));
  prefill_prices_.observe(to_seconds(c.prefill.cost), c.now);
  decode_prices_.observe(decode_cost(c, q), c.now);
}

void admission_judge::price(const placement_candidate& c, admission_question& q) {
  const auto& decode = c.in.cluster.decode();
  const double share = slo_share(c.request.priority);
  const double slo = to_seconds(q.tbt_slo) * share;
  // An empty step takes its time, too: load is how much of the rest is taken.
  const double alone = to_seconds(decode.mean_step(1, c.request.prompt_tokens));
  double load = tbt_reserve * (to_seconds(q.tbt_then) - alone) / std::max(slo - alone, 1e-9);
  if (q.memory_limit > 0) {
    const auto limit = static_cast<double>(q.memory_limit) * memory_share(c.request.priority);
    load = std::max(load, (q.memory + q.memory_needs) / limit);
  }
  q.cost = c.prefill.cost;
  q.decode_cost = decode_cost(c, q);
  if (c.in.options.admission != admission_policy::adaptive) {
    prefill_prices_.observe(to_seconds(q.cost), c.now);
    decode_prices_.observe(q.decode_cost, c.now);
  }
  // An instance works off a second of prefill, or all of its decoding for a second, per second.
  const auto instances = [](const auto& live) { return static_cast<double>(live.size()); };
  const double queue =
      to_seconds(q.ttft - c.prefill.cost) / (to_seconds(q.ttft_slo) * slo_share(c.request.priority));
  q.cost_limit =
      bounded_duration(prefill_prices_.limit(queue, instances(c.in.cluster.prefill().live()), c.now));
  q.decode_cost_limit = decode_prices_.limit(load, instances(decode.live()), c.now);
}

}  // namespace mooncaf
